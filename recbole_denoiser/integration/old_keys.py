"""Keys of older versions of RecBole, still in the files of its users: accepted, warned about, without effect."""

from __future__ import annotations

from collections.abc import Iterable
from logging import getLogger

# old key -> what stands for it today
OLD_KEYS = {
    "neg_sampling": "train_neg_sample_args",
    "training_neg_sample_num": "train_neg_sample_args",
    "training_neg_sample_distribution": "train_neg_sample_args",
    "eval_setting": "eval_args",
    "group_by_user": "eval_args.group_by",
    "split_ratio": "eval_args.split",
    "leave_one_num": "eval_args.split",
    "real_time_process": "eval_args.mode",
    "min_user_inter_num": "user_inter_num_interval",
    "max_user_inter_num": "user_inter_num_interval",
    "min_item_inter_num": "item_inter_num_interval",
    "max_item_inter_num": "item_inter_num_interval",
    "lowest_val": "val_interval",
    "highest_val": "val_interval",
    "equal_val": "val_interval",
    "not_equal_val": "val_interval",
    "fields_in_same_space": "alias_of_item_id",
}
_RECBOLE_WARNS = {"neg_sampling", "training_neg_sample_num"}


def warn_about_old_keys(names: Iterable[str]) -> None:
    """RecBole's own warning, in its words, for the keys about which it says nothing."""
    for name in names:
        if name in OLD_KEYS and name not in _RECBOLE_WARNS:
            getLogger().warning(
                "Warning: Parameter '%s' has been deprecated in the new version, please use '%s' instead; it has no "
                "effect.",
                name,
                OLD_KEYS[name],
            )
