"""RecBole's configuration with this package's defaults, checked keys and no code execution.

RecBole's ``config["typo"]`` returns None and unknown keys are accepted; here a key must be known, of the right
type and in range, and an error says which file or flag it came from.
"""

from __future__ import annotations

import difflib
import functools
import re
from importlib import resources
from logging import getLogger
from pathlib import Path
from typing import Any

import torch
from recbole.config import Config as RecBoleConfig
from recbole.utils.argument_list import dataset_arguments, evaluation_arguments, general_arguments, training_arguments

from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.earlier import with_earlier
from recbole_denoiser.integration.modes import ALLOWED, check_modes
from recbole_denoiser.integration.nested import check_nested
from recbole_denoiser.integration.noise_settings import check_noise
from recbole_denoiser.integration.old_keys import OLD_KEYS, warn_about_old_keys
from recbole_denoiser.integration.paths import properties_folder, property_file
from recbole_denoiser.integration.registry import DEFAULTS_OF, MODELS, model_class, trains_on_sequences
from recbole_denoiser.integration.schema import DERIVED, PACKAGE_KEYS, RUN_KEYS, check_size, check_value, clipping
from recbole_denoiser.integration.values import Loader, read_yaml

# Keys that RecBole reads only inside its distributed start-up, under names that no property file has.
_LAUNCH_KEYS = {"model", "dataset", "config_files", "nproc", "ip", "port", "world_size", "group_offset", "offset",
                "local_rank"}  # fmt: skip


def set_key(values: dict[str, Any], name: str, value: Any) -> None:
    """``values[name] = value``; a dotted name sets one entry of a mapping: ``eval_args.mode``."""
    first, _, rest = name.partition(".")
    if not rest:
        values[first] = value
        return
    inner = values.setdefault(first, {})
    if not isinstance(inner, dict):
        raise UserError(f"--{name}: '{first}' is not a mapping, so it has no entry '{rest}'.")
    set_key(inner, rest, value)


def package_defaults(model: str, dataset: str, overall: bool) -> dict[str, Any]:
    """This package's property files: overall, what its models have in common, the model's, the data set's."""
    values: dict[str, Any] = read_yaml(properties_folder() / "overall.yaml") if overall else {}
    if model in MODELS:
        values.update(read_yaml(properties_folder() / "denoiser.yaml"))
    for file in (property_file("model", DEFAULTS_OF.get(model, model)), property_file("dataset", dataset)):
        if file is not None:
            values.update(read_yaml(file))
    return values


def merge_nested(final: dict[str, Any], defaults: dict[str, Any], given: dict[str, Any]) -> None:
    """RecBole replaces these mappings whole, so that naming only the mode silently loses the split: merge them."""
    for name in ("eval_args", "train_neg_sample_args"):
        if isinstance(defaults.get(name), dict) and isinstance(given.get(name), dict):
            final[name] = {**defaults[name], **given[name]}


def check_order(final: dict[str, Any]) -> None:
    """A sequence is one in time: RecBole's random order would train on the future."""
    order = final["eval_args"].get("order")
    if order != "TO":
        raise UserError(f"eval_args.order = {order} is not allowed: sequential models need TO (time order).")


class Config(RecBoleConfig):
    """Configuration of a run. Precedence as in RecBole: flags over ``config_dict`` over files over defaults.

    >>> Config("SASRecDenoiser", "ml-100k", config_dict={"beta": 0.5}, flags={"beta": 0.25})["beta"]
    0.25
    """

    def __init__(
        self,
        model: str = "SASRecDenoiser",
        dataset: str = "ml-100k",
        config_files: list[str] | None = None,
        config_dict: dict[str, Any] | None = None,
        flags: dict[str, Any] | None = None,
    ) -> None:
        self.sources: dict[str, str] = {}  # key -> where it was set
        self._flags = dict(flags or {})
        super().__init__(model, dataset, config_files, dict(config_dict or {}))
        self._check_combinations()

    # ---- reading: hooks that RecBole's constructor calls ----

    def _build_yaml_loader(self) -> Any:
        return Loader

    def _load_config_files(self, file_list: list[str] | None) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name in file_list or []:
            preset = None if Path(name).is_file() else property_file("experiment", name)
            content = read_yaml(preset or Path(name))
            self.sources.update(dict.fromkeys(content, f"in {name}"))
            values.update(content)
        return values

    def _load_variable_config_dict(self, config_dict: dict[str, Any]) -> dict[str, Any]:
        self.sources.update(dict.fromkeys(config_dict, "in config_dict"))
        return config_dict

    def _load_cmd_line(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, value in self._flags.items():
            set_key(values, name, value)
            self.sources[name.split(".")[0]] = f"from flag --{name}"
        return values

    def _get_model_and_dataset(self, model: str, dataset: str) -> tuple[str, Any, str]:
        return model, model_class(model), str(dataset)

    def _load_internal_config_dict(self, model: str, model_class: Any, dataset: str) -> None:
        super()._load_internal_config_dict(model, model_class, dataset)
        self.internal_config_dict.update(package_defaults(model, dataset, overall=True))

    def _get_final_config_dict(self) -> dict[str, Any]:
        self._check_keys()
        final = super()._get_final_config_dict()
        merge_nested(final, self.internal_config_dict, self.external_config_dict)
        # RecBole's own defaults contradict each other: it refuses its negatives for the cross-entropy it defaults to
        if final.get("loss_type") == "CE" and "train_neg_sample_args" not in self.external_config_dict:
            final["train_neg_sample_args"] = None
        final["clip_grad_norm"] = clipping(final.get("clip_grad_norm"))
        self._choose_device(final)
        self._load_features(final)
        return final

    def _load_features(self, final: dict[str, Any]) -> None:
        """A RecBole model that reads features of the items loads them, unless ``load_col`` is the user's."""
        attribute = final.get("item_attribute")
        columns = list(final.get("selected_features") or ([attribute] if attribute else []))
        if columns and "load_col" not in self.external_config_dict:
            final["load_col"] = {**final["load_col"], "item": [final["ITEM_ID_FIELD"], *columns]}

    def _choose_device(self, final: dict[str, Any]) -> None:
        """``device: cpu | cuda``, which RecBole would overwrite without a word."""
        wanted = self.external_config_dict.get("device")
        if wanted == "cpu":
            final["gpu_id"] = ""
        elif wanted == "cuda" and not torch.cuda.is_available():
            raise UserError(
                f"device = cuda ({self.sources['device']}): torch {torch.__version__} finds no GPU. "
                f"Without this setting the run uses the CPU."
            )

    def _set_default_parameters(self) -> None:
        try:
            super()._set_default_parameters()
        except (ValueError, TypeError, KeyError, AttributeError, NotImplementedError, RuntimeError) as error:
            raise UserError(f"The settings do not fit together: {error}") from error

    def _set_eval_neg_sample_args(self, phase: Any) -> None:
        try:
            if self.final_config_dict["eval_args"]["mode"].get(phase) == "unseen":  # this package's; RecBole knows full
                self.final_config_dict[f"{phase}_neg_sample_args"] = {"distribution": "uniform", "sample_num": "none"}
            else:
                super()._set_eval_neg_sample_args(phase)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            mode = self.final_config_dict["eval_args"].get("mode")
            mode = mode.get(phase) if isinstance(mode, dict) else mode
            raise UserError(f"eval_args.mode = {mode!r} is not allowed: it takes {ALLOWED}.") from error

    # ---- checking ----

    def _check_keys(self) -> None:
        known = self._known_keys()
        warn_about_old_keys(self.external_config_dict)
        for name, value in list(self.external_config_dict.items()):
            if name == "trust_checkpoint":
                self._refuse_trust(value)
                continue
            source = self.sources.get(name, "in config_dict")
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
                hint = f" Did you mean '{near[0]}'?" if near else ""
                raise UserError(f"Unknown key '{name}' ({source}).{hint}")
            check_value(name, value, source, self.internal_config_dict.get(name), self.model in MODELS)
            if name in PACKAGE_KEYS and name not in self.internal_config_dict and self.model not in MODELS:
                getLogger().warning("Key '%s' (%s) has no effect on %s.", name, source, self.model)

    def _refuse_trust(self, value: Any) -> None:
        """A pickled checkpoint can run code, so a file must not be able to ask for it."""
        if value is not False:
            raise UserError(
                f"trust_checkpoint ({self.sources.get('trust_checkpoint', 'in config_dict')}) is not a setting: trust "
                f"comes from the command line of run, recommend or explain (--trust_checkpoint) or from the argument "
                f"trust_checkpoint in Python, never from a file."
            )
        del self.external_config_dict["trust_checkpoint"]

    def _known_keys(self) -> set[str]:
        return self.all_keys() | set(self.internal_config_dict)

    @staticmethod
    def all_keys() -> set[str]:
        """Every key that some model knows."""
        lists = (general_arguments, training_arguments, evaluation_arguments, dataset_arguments)
        return {name for names in lists for name in names} | {*PACKAGE_KEYS, *OLD_KEYS} | _LAUNCH_KEYS | recbole_keys()

    def _check_combinations(self) -> None:
        final = self.final_config_dict
        hidden, heads = final.get("hidden_size"), final.get("n_heads")
        if isinstance(hidden, int) and isinstance(heads, int) and hidden % heads:
            raise UserError(f"hidden_size = {hidden} is not a multiple of n_heads = {heads}.")
        check_order(final)
        wants_sequences = final["train_rows"] == "sequences"
        if wants_sequences and not trains_on_sequences(self.model_class):
            raise UserError(
                f"train_rows = sequences: {self.model} learns from prefixes only; this package's models "
                f"({', '.join(MODELS)}) learn from whole sequences."
            )
        check_noise(self.model, final, self.sources)
        if final["train_batches"] == "bucketed" and not trains_on_sequences(self.model_class):
            raise UserError(f"train_batches = bucketed: {self.model} reads n items of every row; it takes shuffled.")
        check_size(final)
        check_modes(final)
        check_nested(self.model, final, own_negatives=trains_on_sequences(self.model_class))
        metric = final["valid_metric"].lower().split("@")
        if metric[0] not in {m.lower() for m in final["metrics"]} or (
            len(metric) == 2 and int(metric[1]) not in final["topk"]
        ):
            raise UserError(
                f"valid_metric = {final['valid_metric']} is not among metrics {final['metrics']} "
                f"at topk {final['topk']}."
            )

    # ---- what a checkpoint and a result file keep ----

    def plain(self) -> dict[str, Any]:
        """All settings as plain values (no classes, no device objects)."""
        return {name: plain_value(value) for name, value in sorted(self.final_config_dict.items())}


@functools.cache
def recbole_keys() -> frozenset[str]:
    """Every key that RecBole's code or property files mention."""
    package = Path(str(resources.files("recbole")))
    reads = re.compile(r"config\[\s*[\"'](\w+)[\"']\s*\]")
    keys = {name for file in package.rglob("*.py") for name in reads.findall(file.read_text(encoding="utf-8"))}
    for file in (package / "properties").rglob("*.yaml"):
        keys.update(re.findall(r"^(\w+)\s*:", file.read_text(encoding="utf-8"), flags=re.MULTILINE))
    return frozenset(keys)


def plain_value(value: Any) -> Any:
    """``value`` as JSON-like data; anything else as its text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(key): plain_value(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_value(inner) for inner in value]
    return str(value)


def config_from_plain(values: dict[str, Any], kind: Any = None) -> Any:
    """The configuration of a finished run, from the plain values in its checkpoint or result file.

    ``kind``: RecBole's own class, for a model that only RecBole's entry points train.
    """
    skip = {*DERIVED, "model", "dataset", "data_path", "device", "train_neg_sample_args", "valid_neg_sample_args",
            "test_neg_sample_args", "resume", "trust_checkpoint"}  # fmt: skip
    for name in ("model", "dataset", "data_path"):
        if not isinstance(values.get(name), str):
            raise UserError(f"The settings of the run are damaged: {name} is {values.get(name)!r}, not a text.")
    kept = {name: value for name, value in values.items() if name not in skip}
    negatives = values.get("train_neg_sample_args") or {}
    if not isinstance(negatives, dict):
        raise UserError(f"The settings of the run are damaged: train_neg_sample_args is {negatives!r}, not a mapping.")
    if negatives.get("distribution", "none") != "none":
        kept["train_neg_sample_args"] = negatives
    else:
        kept["train_neg_sample_args"] = None
    # RecBole appends the data set's name to data_path
    data_path = Path(values["data_path"])
    kept["data_path"] = str(data_path.parent)
    if kind is None:
        known = PACKAGE_KEYS if values["model"] in MODELS else {key.name for key in RUN_KEYS}
        kept = with_earlier(kept, known)
    return (kind or Config)(values["model"], values["dataset"], config_dict=kept)
