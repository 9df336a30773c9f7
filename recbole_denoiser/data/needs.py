"""What RecBole's models need beside interactions (features, knowledge graphs, sizes), told before training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recbole_denoiser.errors import UserError

# files of a knowledge graph -> what they hold
_HOLDS = {
    "kg": "the triples head_id, relation_id, tail_id",
    "link": "the entity_id of each item_id",
    "ent": "a vector ent_emb for each entity ent_id",
    "rel": "a vector rel_emb for each relation rel_id",
}


def check_files(config: Any, token: str, folder: str) -> None:
    """Files that the model reads beside <name>.inter; ``load_col`` names them by their endings."""
    wanted = [ending for ending in _HOLDS if ending in (config["load_col"] or {})]
    missing = [ending for ending in wanted if not (Path(folder) / f"{token}.{ending}").is_file()]
    if missing:
        files = "; ".join(f"{token}.{ending} ({_HOLDS[ending]})" for ending in missing)
        raise UserError(f"{config['model']} needs a knowledge graph, and in {folder} is no {files}.")
    for ending in config["additional_feat_suffix"] or []:
        if not (Path(folder) / f"{token}.{ending}").is_file():
            raise UserError(f"additional_feat_suffix: in {folder} is no {token}.{ending}.")


def check_needs(config: Any, dataset: Any) -> None:
    """UserError if the data set lacks what the model reads."""
    _check_features(config, dataset)
    _check_vectors(config, dataset)
    sizes = str(config["reranker_CAN_NUM"] or "")
    if sizes and max(int(size) for size in sizes.split(",")) > dataset.item_num:
        raise UserError(
            f"{config['model']} re-ranks the best {sizes} items, but data set '{config['dataset']}' has only "
            f"{dataset.item_num - 1}: lower reranker_CAN_NUM."
        )


# settings that name columns, as a list or as the keys of a mapping
_NAMING = ("alias_of_user_id", "alias_of_item_id", "alias_of_entity_id", "alias_of_relation_id", "normalize_field",
           "numerical_features", "discretization", "val_interval", "threshold", "preload_weight")  # fmt: skip


def check_columns(config: Any, dataset: Any) -> None:
    """UserError if a setting names a column that was not loaded."""
    for name in _NAMING:
        missing = [str(column) for column in config[name] or () if column not in dataset.field2type]
        if missing:
            raise UserError(
                f"{name}: data set '{dataset.dataset_name}' has no column {', '.join(missing)}; loaded are "
                f"{', '.join(dataset.field2type)} (load_col)."
            )
    unknown = [kind for kind in config["unused_col"] or () if kind not in ("inter", "user", "item")]
    if unknown:
        raise UserError(
            f"unused_col maps inter, user and item to lists of columns; it has {', '.join(map(str, unknown))}."
        )


def item_features(settings: dict[str, Any]) -> dict[str, list[str]]:
    """Setting -> columns of the .item file that it names."""
    attribute = settings.get("item_attribute")
    named = {"selected_features": settings.get("selected_features"), "item_attribute": attribute and [attribute]}
    return {key: list(columns) for key, columns in named.items() if columns}


def _check_features(config: Any, dataset: Any) -> None:
    for key, columns in item_features(config.final_config_dict).items():
        missing = [column for column in columns if column not in dataset.field2type]
        if missing:
            raise UserError(
                f"{config['model']} reads features of the items, and {dataset.dataset_name}.item has no column "
                f"{', '.join(missing)}. Name columns that it has: --{key}=..."
            )


def _check_vectors(config: Any, dataset: Any) -> None:
    for field, value in (config["preload_weight"] or {}).items():
        size = config["kg_embedding_size"] or config["embedding_size"]
        width = dataset.get_preload_weight(field).shape[-1]
        if width != size:
            key = "kg_embedding_size" if config["kg_embedding_size"] else "embedding_size"
            raise UserError(f"The vectors {value} of '{config['dataset']}' have {width} numbers: set --{key}={width}.")
