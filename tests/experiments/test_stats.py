"""Paired tests, intervals and the correction against hand-computed and independently computed values."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from records import record
from scipy import stats as scipy_stats

from recbole_denoiser.errors import UserError
from recbole_denoiser.experiments.stats import (
    align,
    bootstrap_interval,
    compare,
    holm,
    mcnemar_p,
    paired_test,
    per_user,
    permutation_p,
    seed_mean,
    t_p,
    wilcoxon_p,
)
from recbole_denoiser.runs.record import UserRanks, load_run, load_runs


def write_run(folder: Path, users: list[str], ranks: list[float], **changes) -> Path:
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps(record(**changes)))
    user, rank = np.array(users), np.array(ranks, dtype=float)
    np.savez(folder / "ranks.npz", test_user=user, test_rank=rank, valid_user=user, valid_rank=rank)
    return folder


# --- metrics and alignment -----------------------------------------------------------------------------------


def test_metrics_by_hand() -> None:
    rank = np.array([1.0, 3.0, 10.0, 10.5, 50.0])
    assert per_user(rank, "hit@10").tolist() == [1, 1, 1, 0, 0]
    assert per_user(rank, "NDCG@10") == pytest.approx([1, 0.5, 1 / math.log2(11), 0, 0])
    assert per_user(rank, "mrr@3") == pytest.approx([1, 1 / 3, 0, 0, 0])
    with pytest.raises(UserError, match="no per-user metric 'recall@10'"):
        per_user(rank, "recall@10")


def test_align_orders_by_user_and_refuses_other_users() -> None:
    first = UserRanks(np.array(["b", "a", "c"]), np.array([2.0, 1.0, 3.0]))
    second = UserRanks(np.array(["c", "b", "a"]), np.array([30.0, 20.0, 10.0]))
    rank_a, rank_b = align(first, second)
    assert rank_a.tolist() == [1, 2, 3]
    assert rank_b.tolist() == [10, 20, 30]
    other = UserRanks(np.array(["a", "b", "d"]), np.ones(3))
    with pytest.raises(UserError, match=r"1 only in X \(such as c\); 1 only in Y \(such as d\)"):
        align(first, other, ("X", "Y"))
    with pytest.raises(UserError, match="more than once"):
        align(first, UserRanks(np.array(["a", "a", "b"]), np.ones(3)))


def test_seeds_are_averaged_per_user_before_the_test() -> None:
    one = UserRanks(np.array(["a", "b"]), np.array([1.0, 20.0]))
    two = UserRanks(np.array(["b", "a"]), np.array([5.0, 30.0]))
    users, values = seed_mean([one, two], "hit@10")
    assert users.tolist() == ["a", "b"]
    assert values.tolist() == [0.5, 0.5]  # a: 1 and 0; b: 0 and 1


# --- the tests -----------------------------------------------------------------------------------------------


def test_permutation_agrees_with_all_sign_patterns() -> None:
    difference = np.array([0.5, 0.5, -0.25, 1.0, 0.0, 0.75, -0.5, 0.25])
    sums = [abs(np.dot(signs, difference)) for signs in itertools.product((-1, 1), repeat=len(difference))]
    exact = np.mean([s >= abs(difference.sum()) - 1e-12 for s in sums])
    resamples = 100_000
    estimate = permutation_p(difference, seed=1, resamples=resamples)
    assert abs(estimate - exact) < 5 * math.sqrt(exact * (1 - exact) / resamples)


def test_permutation_is_never_zero_and_one_without_a_difference() -> None:
    assert permutation_p(np.ones(200), resamples=99) == 0.01
    assert permutation_p(np.zeros(5)) == 1.0


def test_permutation_and_t_agree_on_many_users() -> None:
    rng = np.random.default_rng(0)
    difference = rng.normal(0.05, 1.0, 1000)
    assert permutation_p(difference, resamples=5_000) == pytest.approx(t_p(difference), abs=0.03)


def test_mcnemar_by_hand() -> None:
    # 6 users hit by the first only, 1 by the second only, 5 by both or none: 2 * (1 + 7) / 2^7 = 0.125
    first = np.array([1] * 6 + [0] + [1, 1, 0, 0, 0])
    second = np.array([0] * 6 + [1] + [1, 1, 0, 0, 0])
    assert mcnemar_p(first, second) == pytest.approx(0.125)
    assert mcnemar_p(first, first) == 1.0


def test_wilcoxon_by_hand() -> None:
    # four positive differences of distinct size: the extreme pattern of 2^4, two-sided 2/16; the zero is left out
    assert wilcoxon_p(np.array([0.1, 0.2, 0.3, 0.0, 0.4])) == pytest.approx(0.125)
    assert wilcoxon_p(np.zeros(4)) == 1.0


def test_t_by_hand() -> None:
    difference = np.array([1.0, 2.0, 3.0])  # mean 2, deviation 1: t = 2 sqrt(3) with 2 degrees of freedom
    t = 2 * math.sqrt(3)
    assert t_p(difference) == pytest.approx(1 - t / math.sqrt(2 + t * t))
    assert t_p(np.zeros(3)) == 1.0
    assert t_p(np.ones(3)) == 0.0


def test_paired_test_collects_all() -> None:
    first, second = np.array([1.0, 1, 1, 0, 1, 1]), np.array([0.0, 0, 1, 0, 0, 1])
    found = paired_test(first, second, "hit@10")
    assert (found.users, found.first, found.second) == (6, pytest.approx(5 / 6), pytest.approx(2 / 6))
    assert found.difference == pytest.approx(0.5)
    assert found.mcnemar == pytest.approx(2 / 8)
    assert found.interval[0] < 0.5 < found.interval[1]
    assert paired_test(first / 2, second, "hit@10").mcnemar is None  # means over seeds are no hits
    assert paired_test(first, second, "ndcg@10").mcnemar is None
    with pytest.raises(UserError, match="at least two users"):
        paired_test(np.ones(1), np.ones(1), "hit@10")


def test_bootstrap_interval_equals_the_binomial_one_for_hits() -> None:
    hits = np.array([1.0] * 30 + [0.0] * 70)  # the mean of a draw is Binomial(100, 0.3) / 100
    low, high = bootstrap_interval(hits, resamples=50_000)
    assert low == pytest.approx(scipy_stats.binom.ppf(0.025, 100, 0.3) / 100, abs=0.011)
    assert high == pytest.approx(scipy_stats.binom.ppf(0.975, 100, 0.3) / 100, abs=0.011)
    assert bootstrap_interval(hits, seed=4) == bootstrap_interval(hits, seed=4)


def test_bootstrap_interval_equals_drawing_users() -> None:
    rng = np.random.default_rng(5)
    values = rng.exponential(size=60)
    means = values[rng.integers(60, size=(40_000, 60))].mean(axis=1)
    assert bootstrap_interval(values, level=0.9, resamples=40_000) == pytest.approx(
        np.quantile(means, [0.05, 0.95]), abs=0.01
    )


def test_holm_by_hand() -> None:
    # sorted 0.01, 0.02, 0.03, 0.04 times 4, 3, 2, 1 = 0.04, 0.06, 0.06, 0.04 -> never falling
    assert holm({"d": 0.04, "a": 0.01, "c": 0.03, "b": 0.02}) == pytest.approx(
        {"d": 0.06, "a": 0.04, "c": 0.06, "b": 0.06}
    )
    assert holm({"x": 0.6, "y": 0.7}) == {"x": 1.0, "y": 1.0}
    assert holm({}) == {}
    with pytest.raises(ValueError, match="outside"):
        holm({"x": 1.5})


# --- finished runs -------------------------------------------------------------------------------------------


def test_compare_runs_of_two_seeds(tmp_path: Path) -> None:
    users = ["u1", "u2", "u3", "u4"]
    write_run(tmp_path / "a1", users, [1, 20, 1, 1], label="A", seed=1)
    write_run(tmp_path / "a2", users[::-1], [1, 1, 20, 20], label="A", seed=2)  # u1, u2 miss
    for seed in (1, 2):
        write_run(tmp_path / f"b{seed}", users, [20, 20, 20, 1], label="B", seed=seed)
    runs = load_runs(tmp_path)
    assert [(run.label, run.seed) for run in runs] == [("A", 1), ("A", 2), ("B", 1), ("B", 2)]
    found = compare(runs[:2], runs[2:], "hit@10")
    # A per user: 0.5, 0, 1, 1; B: 0, 0, 0, 1
    assert found.first == pytest.approx(0.625)
    assert found.second == pytest.approx(0.25)
    assert found.mcnemar is None
    assert found.permutation == pytest.approx(0.5, abs=0.03)  # signs of 0.5 and 1: two of four patterns
    over_seed_1 = compare(runs[:2], runs[2:3], "hit@10")  # the only seed that both have
    assert (over_seed_1.first, over_seed_1.second) == (0.75, 0.25) and over_seed_1.mcnemar is not None
    write_run(tmp_path / "c1", users[:3], [1, 2, 3], label="C", seed=1)
    with pytest.raises(UserError, match=r"do not rank the same users: 1 only in A-toy-1 \(such as u4\)"):
        compare(runs[:1], [load_run(tmp_path / "c1")], "hit@10")


def test_loading_skips_unfinished_runs_and_takes_lists(tmp_path: Path) -> None:
    write_run(tmp_path / "grid" / "a", ["u"], [1])
    (tmp_path / "grid" / "running").mkdir()
    assert len(load_runs(tmp_path / "grid")) == 1
    assert len(load_runs([tmp_path / "grid", tmp_path / "grid" / "a"])) == 2
    assert load_run(tmp_path / "grid" / "a").ranks("valid").rank.tolist() == [1.0]


def test_loading_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no folder of runs"):
        load_runs(tmp_path / "none")
    with pytest.raises(UserError, match="no finished run"):
        load_runs(tmp_path)
    with pytest.raises(UserError, match=r"no result\.json"):
        load_run(tmp_path)
    with pytest.raises(UserError, match="list of runs is empty"):
        load_runs([])
    (tmp_path / "result.json").write_text('{"run": ')
    with pytest.raises(UserError, match="cannot be read as JSON"):
        load_run(tmp_path)
    (tmp_path / "result.json").write_text('{"run": "x"}')
    with pytest.raises(UserError, match="lacks label, model"):
        load_run(tmp_path)
    (tmp_path / "result.json").write_text(json.dumps({**record(), "seed": "one"}))
    with pytest.raises(UserError, match="seed is 'one', but must be a whole number"):
        load_run(tmp_path)
    (tmp_path / "result.json").write_text(json.dumps({**record(), "valid": None}))
    assert load_run(tmp_path).valid == {}
    with pytest.raises(UserError, match="ranks of run SASRec-toy-1"):
        load_run(tmp_path).ranks()
    np.savez(tmp_path / "ranks.npz", test_user=np.array(["u"]), test_rank=np.array([0.0]))
    with pytest.raises(UserError, match="from 1"):
        load_run(tmp_path).ranks()
    with pytest.raises(UserError, match="split valid"):
        load_run(tmp_path).ranks("valid")
