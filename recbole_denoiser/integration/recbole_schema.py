"""RecBole's own settings: type, range and choices of those that every sequential model has.

RecBole checks almost nothing, so that a wrong value is a stack trace somewhere in the middle of a run. Settings that
are not listed (a model's own) are checked against the type of RecBole's default value. Upper bounds are far beyond
anything useful: they are there so that a typing error or a crafted file cannot ask for all of the memory.
"""

from __future__ import annotations

from recbole_denoiser.integration.key import Key

_ENVIRONMENT = [
    Key("gpu_id", (str, int, list), at_least=-1, at_most=1023),
    Key("worker", int, at_least=0, at_most=256),
    Key("use_gpu", bool),
    Key("device", str, choices=("cpu", "cuda")),
    Key("seed", int, at_least=0, at_most=2**32 - 1),
    Key("state", str, choices=("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")),
    Key("reproducibility", bool),
    Key("data_path", str),
    Key("checkpoint_dir", str),
    Key("show_progress", bool),
    Key("save_dataset", bool),
    Key("dataset_save_path", str, optional=True),
    Key("save_dataloaders", bool),
    Key("dataloaders_save_path", str, optional=True),
    Key("log_wandb", bool),
    Key("wandb_project", str),
    Key("shuffle", bool),
]
_TRAINING = [
    Key("epochs", int, at_least=0, at_most=1_000_000),
    Key("train_batch_size", int, at_least=1, at_most=10_000_000),
    Key("learner", str, choices=("adam", "adamw", "sgd", "adagrad", "rmsprop", "sparse_adam")),
    Key("learning_rate", float, above=0, at_most=1e30),
    Key("train_neg_sample_args", dict, optional=True),
    Key("eval_step", int, at_least=0, at_most=1_000_000),
    Key("stopping_step", int, at_least=0, at_most=1_000_000),
    Key("clip_grad_norm", (float, dict), above=0, at_most=1e30, optional=True),
    Key("weight_decay", float, at_least=0, at_most=1e6),
    Key("loss_decimal_place", int, at_least=0, at_most=15),
    Key("require_pow", bool),
    Key("enable_amp", bool),
    Key("enable_scaler", bool),
    Key(
        "transform",
        str,
        choices=("mask_itemseq", "inverse_itemseq", "crop_itemseq", "reorder_itemseq", "user_defined"),
        optional=True,
    ),
]
_EVALUATION = [
    Key("eval_args", dict),
    Key("repeatable", bool),
    Key("metrics", (list, str)),
    Key("topk", (list, int), at_least=1, at_most=1_000_000),
    Key("valid_metric", str),
    Key("valid_metric_bigger", bool),
    Key("eval_batch_size", int, at_least=1, at_most=1_000_000_000),
    Key("metric_decimal_place", int, at_least=0, at_most=15),
]
_DATA = [
    *(
        Key(name, str)
        for name in ("USER_ID_FIELD", "ITEM_ID_FIELD", "RATING_FIELD", "TIME_FIELD", "LABEL_FIELD", "NEG_PREFIX",
                     "ITEM_LIST_LENGTH_FIELD", "LIST_SUFFIX", "POSITION_FIELD", "HEAD_ENTITY_ID_FIELD",
                     "TAIL_ENTITY_ID_FIELD", "RELATION_ID_FIELD", "ENTITY_ID_FIELD", "field_separator",
                     "seq_separator")
    ),
    *(
        Key(name, dict, optional=True)
        for name in ("seq_len", "threshold", "load_col", "unload_col", "unused_col", "val_interval", "preload_weight",
                     "discretization")
    ),
    *(
        Key(name, list, optional=True)
        for name in ("additional_feat_suffix", "alias_of_user_id", "alias_of_item_id", "alias_of_entity_id",
                     "alias_of_relation_id", "normalize_field", "benchmark_filename")
    ),
    *(
        Key(name, str, "", pattern=r"[\[(]\s*[-+\d.einf]+\s*,\s*[-+\d.einf]+\s*[\])]",
            words="an interval such as [5,inf)", optional=True)
        for name in ("user_inter_num_interval", "item_inter_num_interval", "entity_kg_num_interval",
                     "relation_kg_num_interval")
    ),
    Key("numerical_features", list),
    Key("rm_dup_inter", str, choices=("first", "last"), optional=True),
    Key("filter_inter_by_user_or_item", bool),
    Key("normalize_all", bool, optional=True),
    Key("kg_reverse_r", bool),
    Key("encoding", str, optional=True),
    Key("MAX_ITEM_LIST_LENGTH", int, at_least=1, at_most=20_000),
]  # fmt: skip
_MODEL = [
    *(Key(name, int, at_least=1, at_most=65_536) for name in ("hidden_size", "inner_size", "embedding_size")),
    *(Key(name, int, at_least=1, at_most=1000) for name in ("n_layers", "num_layers", "n_heads")),
    *(Key(name, float, at_least=0, below=1) for name in ("hidden_dropout_prob", "attn_dropout_prob", "dropout_prob")),
    Key("hidden_act", str, choices=("gelu", "relu", "swish", "tanh", "sigmoid")),
    Key("layer_norm_eps", float, above=0, at_most=1),
    Key("initializer_range", float, above=0, at_most=100),
]
_PROCESSES = [
    *(Key(name, int, at_least=0, at_most=100_000) for name in ("local_rank", "offset", "group_offset")),
    *(Key(name, int, at_least=-1, at_most=100_000) for name in ("nproc", "world_size")),
    Key("ip", str),
    Key("port", (int, str), at_least=0, at_most=65_535),
]
RECBOLE_KEYS = {key.name: key for key in [*_ENVIRONMENT, *_PROCESSES, *_TRAINING, *_EVALUATION, *_DATA, *_MODEL]}


def key_like(name: str, default: object) -> Key | None:
    """The key of a model's own setting, by the type of its default; None where the default tells nothing."""
    if isinstance(default, bool):
        return Key(name, bool)
    if isinstance(default, int):
        return Key(name, int, at_least=-1_000_000, at_most=1_000_000)
    if isinstance(default, float):
        return Key(name, float, at_least=-1e9, at_most=1e9)
    # RecBole takes a single value where its default is a list (kernel: 3)
    kinds: dict[type, tuple[type, ...]] = {str: (str,), dict: (dict,), list: (list, str, float)}
    return Key(name, kinds[type(default)], optional=True) if type(default) in kinds else None
