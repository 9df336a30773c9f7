"""The configuration keys of this package: type, allowed values, meaning.

The denoiser's come from its dataclass (core/config.py), RecBole's own stand in recbole_schema.py. Default values stand
in ``properties/``. ``docs/configuration.md`` is generated from all of these.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from recbole_denoiser.core.config import DenoiserConfig
from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.key import Key
from recbole_denoiser.integration.recbole_schema import RECBOLE_KEYS, key_like
from recbole_denoiser.integration.trackers import TRACKER

NOISE_KINDS = ("replace", "insert", "popularity", "segment")
RUN_KEYS = [
    Key(
        "train_rows",
        str,
        "`sequences`: one row per user, loss at every position; `prefixes`: RecBole's augmentation, one row "
        "per prefix, loss at its last position.",
        choices=("sequences", "prefixes"),
    ),
    Key(
        "long_history",
        str,
        "With `train_rows: sequences`, what happens to a user with more than n items: `last` keeps the newest "
        "n, `windows` makes a row of every n.",
        choices=("last", "windows"),
    ),
    Key(
        "train_batches",
        str,
        "`bucketed`: rows of similar length share a batch, which is cut to the longest; batches have as many positions "
        "as `train_batch_size` rows of mean length. `shuffled`: `train_batch_size` rows at random.",
        choices=("bucketed", "shuffled"),
    ),
    Key(
        "eval_negatives",
        str,
        "`frozen`: drawn once per data set, seed and phase, the same for every model and epoch; `recbole`: "
        "drawn anew at each evaluation.",
        choices=("frozen", "recbole"),
    ),
    Key(
        "train_noise",
        float,
        "Share of the training items that are noise (section 5.3); validation and test items stay as they are.",
        at_least=0,
        below=1,
    ),
    Key(
        "train_noise_kind",
        str,
        "Noise of `train_noise` and `eval_noise`: `replace` by items drawn uniformly (the paper), by `popularity`, by "
        "a `segment` of 3 to 5 consecutive items of another user; or `insert` items drawn uniformly.",
        choices=NOISE_KINDS,
    ),
    Key(
        "eval_noise",
        float,
        "The same noise only in the training items that are read at validation and test, for a model trained without.",
        at_least=0,
        below=1,
    ),
    Key(
        "noise_seed",
        int,
        "Seed of the noise; empty: the run's `seed`.",
        at_least=0,
        at_most=2**32 - 1,
        optional=True,
    ),
    Key(
        "noise_oracle",
        str,
        "A bound, with `train_noise` only: what is known to be noise is closed to attention in every layer (`mask`, in "
        "the form of `mask_form`), not used as a target (`target`), `both`, or `remove`d from the sequences.",
        choices=("none", "mask", "target", "both", "remove"),
    ),
    Key(
        "noise_action",
        str,
        "What is done about noise that the detector finds in the training part: `remove` takes suspicious interactions "
        "out of the training sequences and of the histories read at validation and test; `weight` weights the loss of "
        "a target by 1 - posterior (this package's models).",
        choices=("none", "remove", "weight"),
    ),
    Key("noise_threshold", float, "Posterior of being noise from which on `remove` removes.", above=0, at_most=1),
    Key("noise_weight", bool, "With `remove`: a target that stays counts 1 - its posterior of being noise."),
    Key("detect_seed", int, "Seed of the noise detector.", at_least=0, at_most=2**32 - 1),
    Key("fast_eval", bool, "Sampled evaluation encodes each sequence once. `False` is RecBole's own path."),
    Key("fast_inference", bool, "Scoring computes only what the newest position needs. `False`: every position."),
    Key(
        "eval_modes",
        list,
        "Modes in which the trained model is measured beside `eval_args.mode`, such as [uni100, full, "
        "unseen]; training, early stopping and `test` follow `eval_args.mode`.",
        optional=True,
    ),
    Key(
        "lr_schedule",
        str,
        "Learning rate after the warm-up: `constant`, or `linear` or `cosine` decay to 0 over `epochs`.",
        choices=("constant", "linear", "cosine"),
    ),
    Key(
        "lr_warmup", int, "Epochs over which the learning rate rises to `learning_rate`.", at_least=0, at_most=1_000_000
    ),
    Key(
        "result_dir",
        str,
        "Folder that gets one sub-folder per run, with all its files but those of a `checkpoint_dir`.",
    ),
    Key(
        "run_name",
        str,
        "Name of the run; empty: of model, data set, seed and a hash of the settings (numbered, if it is finished).",
        optional=True,
    ),
    Key("label", str, "Name of the run in tables; empty: the model's, or its plain backbone's.", optional=True),
    Key("resume", bool, "Continue this run where it was interrupted."),
    Key("overwrite", bool, "Replace a finished run of the same name."),
    Key(
        "num_threads", int, "CPU threads of torch; empty: torch's own choice.", at_least=1, at_most=4096, optional=True
    ),
    Key(
        "on_nonfinite",
        str,
        "What a non-finite loss or gradient does: `stop` the run, or `skip` the step.",
        choices=("stop", "skip"),
    ),
    TRACKER,
]

BACKBONE_KEYS = [
    Key(
        "position_from",
        str,
        "Where positions are counted from: `end` (newest item last for every user, as SASRec) or `start` (RecBole).",
        choices=("end", "start"),
    ),
    Key(
        "loss_type",
        str,
        "`BCE` (eq. 7, sampled negatives), `CE` (softmax over all items), `SSM` (softmax over the target and sampled "
        "negatives), `gBCE` (BCE with a calibrated positive part) or `BPR`.",
        choices=("BCE", "CE", "SSM", "gBCE", "BPR"),
    ),
    Key(
        "train_negatives",
        int,
        "Sampled negatives k per position (or per step, `negatives_shared`) for all objectives but CE.",
        at_least=1,
        at_most=10_000,
    ),
    Key(
        "negative_sampling",
        str,
        "How negatives are drawn: `uniform`; `popularity`, by the number of training targets (SSM then subtracts log q "
        "from the scores); `in_batch`, k of the batch's targets for all positions (log q as well).",
        choices=("uniform", "popularity", "in_batch"),
    ),
    Key(
        "negatives_shared",
        bool,
        "`True`: one draw of k negatives per step for all positions, none of which is a position's own target; "
        "`False`: k per position, never from the user's training history.",
    ),
    Key("gbce_t", float, "gBCE: calibration t; 0 is BCE, 1 undoes the sampling of negatives.", at_least=0, at_most=1),
    Key("mask_ratio", float, "BERT4Rec: share of items replaced by the mask token.", above=0, below=1),
    Key("ft_ratio", float, "BERT4Rec: share of training rows that mask the last item only.", at_least=0, at_most=1),
    Key(
        "target_denoise",
        str,
        "Noisy targets: `truncate` drops, `reweight` down-weights the positions with the largest positive loss.",
        choices=("none", "truncate", "reweight"),
    ),
    Key(
        "target_rate",
        float,
        "Share dropped (`truncate`) or strength of the weighting (`reweight`).",
        at_least=0,
        below=1,
    ),
    Key("target_warmup", int, "Epochs over which `target_rate` grows from 0.", at_least=0, at_most=1_000_000),
]

# The paper's other systems: TiSASRec, SSE-PT, alpha-entmax and Sparse Transformer
BASELINE_KEYS = [
    Key(
        "time_span",
        int,
        "TiSASRec: largest time interval; longer ones count as this one.",
        at_least=1,
        at_most=1_000_000_000,
    ),
    Key("user_size", int, "SSEPT: width of the user vector, a part of `hidden_size`.", at_least=1, at_most=65_536),
    Key("sse_user", float, "SSEPT: probability that a user is replaced by another in training.", at_least=0, at_most=1),
    Key(
        "sse_item",
        float,
        "SSEPT: probability that an input or target item is replaced by another in training.",
        at_least=0,
        at_most=1,
    ),
    Key("entmax_alpha", float, "Entmax: initial alpha of every head; it is learned.", above=1.01, below=2),
    Key("pattern", str, "SASRecSparse: pattern of the attention.", choices=("fixed", "strided")),
    Key(
        "stride",
        int,
        "SASRecSparse: length of a block or of a stride, at most MAX_ITEM_LIST_LENGTH.",
        at_least=1,
        at_most=100_000,
    ),
    Key(
        "summary",
        int,
        "SASRecSparse: positions of a block that all later ones see (`fixed`).",
        at_least=1,
        at_most=100_000,
    ),
]

# The denoiser's own settings stand in its dataclass, with their default, meaning and limits
DENOISER_KEYS = [
    Key("denoise", bool, "`False`: the plain backbone under the same objective."),
    *(Key.of(field) for field in dataclasses.fields(DenoiserConfig) if field.metadata["public"]),
    Key("mask_learning_rate", float, "Learning rate of Phi.", above=0, at_most=1e30),
]

PACKAGE_KEYS = {key.name: key for key in RUN_KEYS + BACKBONE_KEYS + BASELINE_KEYS + DENOISER_KEYS}

# Where and how a run runs, not what it computes: the same experiment has the same name on every machine, and a run may
# be resumed with other values.
PLACES = frozenset({
    "data_path", "checkpoint_dir", "result_dir", "run_name", "label", "resume", "overwrite", "trust_checkpoint",
    "show_progress",
    "device", "gpu_id", "use_gpu", "state", "log_wandb", "wandb_project", "tracker", "worker", "save_dataset",
    "dataset_save_path", "save_dataloaders", "dataloaders_save_path", "num_threads", "nproc", "ip", "port",
    "config_files",
})  # fmt: skip

# What RecBole works out from other settings and the machine.
DERIVED = frozenset({"MODEL_TYPE", "MODEL_INPUT_TYPE", "eval_type", "single_spec", "local_rank", "valid_metric_bigger"})


def deciding(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the plain settings that the numbers depend on."""
    return {name: value for name, value in settings.items() if name not in PLACES}


def check_value(name: str, value: Any, source: str, default: Any, package_model: bool) -> None:
    """Raise a UserError if ``value`` of key ``name`` has a wrong type or lies out of range.

    ``default`` is the value in the property files; ``package_model`` says whether this package's allowed
    values hold (RecBole's models share some key names).
    """
    key = RECBOLE_KEYS.get(name)
    if name in PACKAGE_KEYS and (package_model or name in {k.name for k in RUN_KEYS}):
        key = PACKAGE_KEYS[name]
    if key is None and value is not None:
        key = key_like(name, default)
    if key is not None and key.problem(value):
        raise UserError(f"{name} = {_short(value)} ({source}) is not allowed: it takes {key.allowed()}.")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


LARGEST = 10_000_000_000  # parameters


def check_size(settings: Mapping[str, Any]) -> None:
    """UserError if a Transformer of these sizes has more parameters than any machine this package runs on holds."""
    names = ("n_layers", "hidden_size", "inner_size", "MAX_ITEM_LIST_LENGTH")
    layers, hidden, inner, n = (int(settings.get(name) or 0) for name in names)
    count = layers * (4 * hidden**2 + 2 * hidden * inner + (n**2 if settings.get("denoise") else 0))
    if count > LARGEST:
        sizes = ", ".join(f"{name} = {settings.get(name)}" for name in names)
        raise UserError(f"{sizes}: such a model has {count:.1e} parameters; at most {LARGEST:.0e} are allowed.")


def clipping(value: Any) -> dict[str, float] | None:
    """``clip_grad_norm`` as torch takes it; a number is the largest norm."""
    if value is None or isinstance(value, (int, float)):
        return None if value is None else {"max_norm": value}
    numbers = all(isinstance(number, (int, float)) and 0 < number <= 1e30 for number in value.values())
    if not numbers or "max_norm" not in value or not value.keys() <= {"max_norm", "norm_type"}:
        raise UserError(
            f"clip_grad_norm = {_short(value)} is not allowed: it takes a number > 0, or a mapping with max_norm and "
            f"perhaps norm_type."
        )
    return value
