"""Settings: RecBole's stay valid, mistakes are told with their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from recbole_denoiser.errors import UserError
from recbole_denoiser.integration.config import Config, config_from_plain
from recbole_denoiser.integration.flags import flag_value
from recbole_denoiser.integration.registry import known_models
from recbole_denoiser.integration.values import parse_value, read_yaml


def test_typo_in_flag_suggests_the_key() -> None:
    with pytest.raises(UserError, match=r"'hiden_size' \(from flag --hiden_size\). Did you mean 'hidden_size'"):
        Config(flags={"hiden_size": 64})


def test_typo_in_file_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text("learning_rte: 0.1\n")
    with pytest.raises(UserError, match=r"my.yaml\). Did you mean 'learning_rate'"):
        Config(config_files=[str(file)])


def test_unknown_model_suggests_and_lists() -> None:
    with pytest.raises(UserError, match=r"Did you mean SASRec\?(.|\n)*BERT4RecDenoiser(.|\n)*GRU4Rec"):
        Config("SASRek")


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("epochs", "many", "whole number >= 0"),
        ("epochs", -1, "whole number >= 0"),
        ("epochs", True, "whole number"),
        ("learning_rate", 0, "number > 0"),
        ("hidden_dropout_prob", 1.0, "< 1"),
        ("estimator", "arms", "arm | disarm"),
        ("beta", -1, ">= 0"),
        ("target_sparsity", 1.5, "< 1"),
        ("denoise", "perhaps", "True | False"),
        ("show_progress", 3, "True | False"),
        ("eval_args", 3, "mapping"),
        ("hidden_size", 51, "multiple of n_heads"),
        ("valid_metric", "Recall@10", "not among metrics"),
        ("eval_args.mode", "uniform", "uniN"),
        ("eval_args.mode", None, "uniN"),
        ("eval_args.order", "RO", "TO"),
        ("initializer_range", 0, "number > 0"),
    ],
)
def test_wrong_values_say_what_is_allowed(key: str, value: object, allowed: str) -> None:
    with pytest.raises(UserError) as error:
        Config(flags={key: value})
    assert allowed in str(error.value)


def test_precedence_flags_over_dict_over_files_over_defaults(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text("epochs: 3\nseed: 4\nbeta: 1e-4\n")
    config = Config(config_files=[str(file)], config_dict={"seed": 5, "n_layers": 3}, flags={"n_layers": 1})
    assert (config["epochs"], config["seed"], config["n_layers"], config["beta"]) == (3, 5, 1, 1e-4)
    assert config["n_heads"] == 2


def test_naming_only_the_mode_keeps_the_split() -> None:
    config = Config(flags={"eval_args.mode": "full"})
    assert config["eval_args"]["split"] == {"LS": "valid_and_test"}
    assert config["eval_args"]["mode"] == {"valid": "full", "test": "full"}


def test_recbole_yaml_is_read_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "recbole.yaml"
    file.write_text(
        "train_neg_sample_args: ~\neval_args:\n  split: {'RS': [0.8,0.1,0.1]}\n  group_by: user\n  order: TO\n  mode: full\n"
        "metrics: ['Recall', 'MRR']\ntopk: 10\nvalid_metric: MRR@10\nuser_inter_num_interval: '[5,inf)'\nload_col:\n"
        "  inter: [user_id, item_id, rating, timestamp]\nembedding_size: 32\n"
    )
    config = Config("GRU4Rec", config_files=[str(file)])
    assert config["embedding_size"] == 32
    assert config["eval_args"]["split"] == {"RS": [0.8, 0.1, 0.1]}


@pytest.mark.parametrize("model", ["SASRec", "BERT4Rec", "GRU4Rec", "Caser", "FPMC", "NARM", "STAMP", "SASRecDenoiser"])
def test_default_settings_of_models_are_accepted(model: str) -> None:
    assert Config(model)["model"] == model
    assert model in known_models()


def test_sequences_need_a_model_that_learns_from_them() -> None:
    with pytest.raises(UserError, match="GRU4Rec learns from prefixes only"):
        Config("GRU4Rec", flags={"train_rows": "sequences"})


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-4", 1e-4), ("1e5", 1e5), ("0.5", 0.5), ("3", 3), ("True", True), ("None", None), ("none", "none"),
     ("[1, 2]", [1, 2]), ("(1, 2)", (1, 2)), ("{'a': 1}", {"a": 1}), ("CE", "CE"), ("2020-01-01x", "2020-01-01x"),
     ("__import__('os').getcwd()", "__import__('os').getcwd()"), ("", None)],
)  # fmt: skip
def test_flag_values_are_data(text: str, value: object) -> None:
    assert parse_value(text) == value


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [("run_name", "3.10", "3.10"), ("run_name", "2024", "2024"), ("label", "[a]", "[a]"), ("data_path", "1e3", "1e3"),
     ("run_name", "None", None), ("run_name", "~", None), ("seed", "3", 3), ("mask", "content", "content"),
     ("gpu_id", "0", 0)],
)  # fmt: skip
def test_a_free_text_stays_text(name: str, text: str, value: object) -> None:
    found = flag_value(name, text)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize("bracket", ["[", "{", "(", "- "])
def test_a_deep_flag_value_is_text(bracket: str) -> None:
    assert parse_value(50_000 * bracket) == 50_000 * bracket


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.system ['true']\n",
        "a: [1\n",
        "- 1\n- 2\n",
        "just text",
        "1: 2\n",
        "a: !!python/name:os.system\n",
        "a: " + 100_000 * "[",
        "a: " + 50_000 * "{b: " + 50_000 * "}",
        "\n".join(" " * depth + "a:" for depth in range(1000)),
    ],
)
def test_bad_yaml_is_told_and_not_run(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(UserError, match=r"bad\.yaml"):
        read_yaml(file)


def test_missing_config_file() -> None:
    with pytest.raises(UserError, match=r"'nowhere.yaml' does not exist"):
        Config(config_files=["nowhere.yaml"])


@pytest.mark.parametrize("model", ["SASRecDenoiser", "GRU4Rec", "FPMC"])
def test_plain_settings_give_the_same_configuration(model: str) -> None:
    config = Config(model, flags={"epochs": 7, "eval_args.mode": "full"})
    again = config_from_plain(config.plain())
    assert again.plain() == config.plain()
