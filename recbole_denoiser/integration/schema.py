"""The configuration keys of this package: type, allowed values, meaning; and the ranges of RecBole's own.

Default values stand in ``properties/``. ``docs/configuration.md`` is generated from both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from recbole_denoiser.core import DenoiserConfig
from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.key import Key

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
    Key("noise_seed", int, "Seed of the noise; empty: the run's `seed`.", at_least=0, optional=True),
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
    Key("detect_seed", int, "Seed of the noise detector.", at_least=0),
    Key("fast_eval", bool, "Sampled evaluation encodes each sequence once. `False` is RecBole's own path."),
    Key("fast_inference", bool, "Scoring computes only what the newest position needs. `False`: every position."),
    Key("result_dir", str, "Folder that gets one sub-folder per run."),
    Key(
        "run_name",
        str,
        "Name of the run; empty: made of model, data set, seed and a hash of the settings.",
        optional=True,
    ),
    Key("label", str, "Name of the run in tables; empty: the model's name.", optional=True),
    Key("resume", bool, "Continue this run where it was interrupted."),
    Key("num_threads", int, "CPU threads of torch; empty: torch's own choice.", at_least=1, optional=True),
    Key(
        "on_nonfinite",
        str,
        "What a non-finite loss or gradient does: `stop` the run, or `skip` the step.",
        choices=("stop", "skip"),
    ),
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
    Key("target_warmup", int, "Epochs over which `target_rate` grows from 0.", at_least=0),
]

# The paper's other systems: TiSASRec, SSE-PT, alpha-entmax and Sparse Transformer
BASELINE_KEYS = [
    Key("time_span", int, "TiSASRec: largest time interval; longer ones count as this one.", at_least=1),
    Key("user_size", int, "SSEPT: width of the user vector, a part of `hidden_size`.", at_least=1),
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
    Key("stride", int, "SASRecSparse: length of a block or of a stride, at most MAX_ITEM_LIST_LENGTH.", at_least=1),
    Key("summary", int, "SASRecSparse: positions of a block that all later ones see (`fixed`).", at_least=1),
]


def _denoiser_key(setting: dataclasses.Field[Any]) -> Key:
    """A public setting of DenoiserConfig as a configuration key."""
    limits = setting.metadata
    return Key(
        setting.name, limits["type"], limits["help"], limits["choices"], limits["minimum"], limits["above"],
        limits["maximum"], limits["below"], limits["optional"],
    )  # fmt: skip


DENOISER_KEYS = [
    Key("denoise", bool, "`False`: the plain backbone under the same objective."),
    *(_denoiser_key(setting) for setting in dataclasses.fields(DenoiserConfig) if setting.metadata["public"]),
    Key("mask_learning_rate", float, "Learning rate of Phi.", above=0),
]

PACKAGE_KEYS = {key.name: key for key in RUN_KEYS + BACKBONE_KEYS + BASELINE_KEYS + DENOISER_KEYS}

# RecBole's own keys that have a range; for all others the type of RecBole's default value is checked.
RECBOLE_RANGES = {
    key.name: key
    for key in [
        Key("epochs", int, at_least=0),
        Key("train_batch_size", int, at_least=1),
        Key("eval_batch_size", int, at_least=1),
        Key("learning_rate", float, above=0),
        Key("weight_decay", float, at_least=0),
        Key("eval_step", int, at_least=0),
        Key("stopping_step", int, at_least=0),
        Key("seed", int, at_least=0),
        Key("worker", int, at_least=0),
        Key("MAX_ITEM_LIST_LENGTH", int, at_least=1),
        Key("hidden_size", int, at_least=1),
        Key("inner_size", int, at_least=1),
        Key("embedding_size", int, at_least=1),
        Key("n_layers", int, at_least=1),
        Key("n_heads", int, at_least=1),
        Key("num_layers", int, at_least=1),
        Key("hidden_dropout_prob", float, at_least=0, below=1),
        Key("attn_dropout_prob", float, at_least=0, below=1),
        Key("dropout_prob", float, at_least=0, below=1),
        Key("metric_decimal_place", int, at_least=0),
        Key("learner", str, choices=("adam", "adamw", "sgd", "adagrad", "rmsprop", "sparse_adam")),
        Key("device", str, choices=("cpu", "cuda")),
        Key("state", str, choices=("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")),
    ]
}  # fmt: skip


# Where and how a run runs, not what it computes: the same experiment has the same name on every machine, and a run may
# be resumed with other values.
PLACES = frozenset({
    "data_path", "checkpoint_dir", "result_dir", "run_name", "label", "resume", "trust_checkpoint", "show_progress",
    "device", "gpu_id", "use_gpu", "state", "log_wandb", "wandb_project", "worker", "save_dataset",
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
    key = RECBOLE_RANGES.get(name)
    if name in PACKAGE_KEYS and (package_model or name in {k.name for k in RUN_KEYS}):
        key = PACKAGE_KEYS[name]
    if key is None and default is not None and value is not None:
        kind = float if isinstance(default, float) else type(default)
        # RecBole takes a single value where its default is a list (topk: 10), and numbers for its id texts (gpu_id: 0)
        if kind in (int, float, bool, dict):
            key = Key(name, kind)
    if key is not None and key.problem(value):
        raise UserError(f"{name} = {value!r} ({source}) is not allowed: it takes {key.allowed()}.")
