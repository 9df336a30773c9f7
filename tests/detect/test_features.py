"""Counts, vectors and features against three users counted by hand.

user 0: a b c    user 1: a b    user 2: b c a      window 1, statistics of users 0 and 1:
k_ab = 2, k_bc = 1, k_ac = 0;  deg = 2, 3, 1;  D = 6;  pop = 2, 2, 1;  q = 0.4, 0.4, 0.2
"""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from made_up import made_up
from scipy import sparse

from recbole_denoiser.detect.counts import Counts, count
from recbole_denoiser.detect.crossfit import Rows, cross_fit
from recbole_denoiser.detect.features import NAMES, NEAR_NAMES, Statistics, features
from recbole_denoiser.detect.progress import Progress
from recbole_denoiser.detect.settings import Settings
from recbole_denoiser.detect.vectors import item_vectors, leading, ppmi

A, B, C, EMPTY = 0, 1, 2, 3
USER, ITEM = np.array([0, 0, 0, 1, 1]), np.array([A, B, C, A, B])
TABLE = np.array([[0, 2, 0, 0], [2, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]], dtype=np.float32)
VECTORS = np.array([[1, 0], [0, 1], [0.6, 0.8], [0, 0]], dtype=np.float32)


def both(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setattr("recbole_denoiser.detect.counts.DENSE_ITEMS", 100 if form == "dense" else 0)


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("piece", [1, 2, 100])
def test_counts(monkeypatch: pytest.MonkeyPatch, form: str, piece: int) -> None:
    both(monkeypatch, form)
    monkeypatch.setattr("recbole_denoiser.detect.counts.CHUNK", piece)
    found = count(USER, ITEM, 3, window=1)
    assert sparse.issparse(found.table) == (form == "sparse")
    np.testing.assert_array_equal(sparse.csr_matrix(found.table).toarray(), TABLE)
    np.testing.assert_array_equal(found.degree, [2, 3, 1, 0])
    np.testing.assert_array_equal(found.popularity, [2, 2, 1, 0])
    assert found.total == 6
    np.testing.assert_allclose(found.frequency, [0.4, 0.4, 0.2, 0])
    np.testing.assert_array_equal(
        found.pairs(np.array([[A, C], [B, A]]), np.array([[B, B], [EMPTY, C]])), [[2, 1], [0, 0]]
    )
    wider = count(USER, ITEM, 3, window=2)
    assert wider.pairs(np.array([A]), np.array([C]))[0] == 1 / 2 and wider.total == 7


@pytest.mark.parametrize(("form", "piece"), [("dense", 100), ("sparse", 100), ("sparse", 1), ("sparse", 3)])
def test_ppmi(monkeypatch: pytest.MonkeyPatch, form: str, piece: int) -> None:
    both(monkeypatch, form)
    monkeypatch.setattr("recbole_denoiser.detect.vectors.CHUNK", piece)
    found = sparse.csr_matrix(ppmi(count(USER, ITEM, 3, window=1))).toarray()
    want = np.zeros((4, 4))
    want[A, B] = log(2 * 6**0.75 / (2 * 3**0.75))
    want[B, A] = log(2 * 6**0.75 / (3 * 2**0.75))
    want[B, C] = log(1 * 6**0.75 / (3 * 1))
    want[C, B] = log(1 * 6**0.75 / (1 * 3**0.75))
    assert (want[want != 0] > 0).all()
    np.testing.assert_allclose(found, want, atol=1e-6)


def test_nothing_leads_in_a_matrix_of_zeros() -> None:
    """Every item is as often beside every other as chance says: no vectors, and no crash."""
    found, sizes = leading(np.zeros((5, 5), dtype=np.float32), 2, seed=0)
    assert found.shape == (5, 0) and sizes.shape == (0,)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_leading_vectors_are_those_of_the_exact_decomposition(form) -> None:
    """Against LAPACK, on a matrix with singular values 1, 1/2, 1/4, .. and on one of rank 2."""
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.normal(size=(40, 40)))[0] for _ in range(2))
    for values in (0.5 ** np.arange(40), np.r_[3.0, 2.0, np.zeros(38)]):
        matrix = (left * values) @ right.T
        found, sizes = leading(form(matrix.astype(np.float32)), 2, seed=0)
        np.testing.assert_allclose(sizes, values[:2], rtol=1e-4)
        np.testing.assert_allclose(np.abs((found * left[:, :2]).sum(0)), 1, atol=1e-4)


def test_vectors_have_length_one_and_strangers_none() -> None:
    user, item, n_items = made_up(users=30, length=8, topics=3, per_topic=5)
    vectors = item_vectors(count(user, item, n_items + 1, 3), 6, 0)  # one item never occurs
    np.testing.assert_allclose(np.linalg.norm(vectors[np.unique(item)], axis=1), 1, atol=1e-5)
    assert (vectors[n_items:] == 0).all()
    same, other = vectors[0] @ vectors[1], vectors[0] @ vectors[6]
    assert same > 0.5 > other


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_every_feature_by_hand(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    both(monkeypatch, form)
    statistics = Statistics(count(USER, ITEM, 3, window=1), VECTORS)
    user, item = np.array([2, 2, 2]), np.array([B, C, A])
    found = features(user, item, np.array([1]), np.array([C]), statistics, window=1)[0]
    g = ((1 + 15 * 0.2) / (3 + 15) + (0 + 15 * 0.2) / (2 + 15)) / 2
    want = {
        "popularity": log(1 + 1),
        "given": log(g + 0.02),
        "lift": log((g + 0.02) / (0.2 + 0.02)),
        "seen": 1 / 2,
        "pmi": (log(1 * 6 / (1 * 3) + 1e-3) + log(1e-3)) / 2,
        "cosine": (0.8 + 0.6) / 2,
        "nearest": 0.8,
        "agreement": 0.0,
        "neighbours": log(3),
    }
    np.testing.assert_allclose(found[: len(NAMES)], [want[name] for name in NAMES], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_near_neighbours_and_usual_company_by_hand(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """a after b c: c is beside it, b two places away, so that their weights are 2/3 and 1/3.

    s_a = v_b, s_b = (2 v_a + v_c) / 3, s_c = v_b.
    """
    both(monkeypatch, form)
    statistics = Statistics(count(USER, ITEM, 3, window=1), VECTORS)
    found = features(np.array([2, 2, 2]), np.array([B, C, A]), np.array([2]), np.array([A]), statistics, window=2)[0]
    g = 1 / 3 * (2 + 15 * 0.4) / (3 + 15) + 2 / 3 * (0 + 15 * 0.4) / (1 + 15)
    middle = 1 / 3 * VECTORS[B] + 2 / 3 * VECTORS[C]
    want = {
        "near_lift": log((g + 0.02) / (0.4 + 0.02)),
        "near_cosine": 2 / 3 * 0.6,
        "company": middle[1] / np.hypot(*middle),
        "usual": 0.0,
        "usual_around": (0.8 / 3 + 0.8) / 2,
    }
    assert statistics.names == NAMES + NEAR_NAMES
    np.testing.assert_allclose(found[len(NAMES) :], [want[name] for name in NEAR_NAMES], rtol=1e-5, atol=1e-6)


def test_an_item_of_another_user_is_no_neighbour() -> None:
    statistics = Statistics(count(USER, ITEM, 3, window=1), VECTORS)
    found = features(USER, ITEM, np.array([2, 3]), ITEM[[2, 3]], statistics, window=5)
    np.testing.assert_allclose(found[:, NAMES.index("neighbours")], [log(3), log(2)], rtol=1e-6)


def test_another_item_at_the_place_leaves_what_is_around_it() -> None:
    statistics = Statistics(count(USER, ITEM, 3, window=1), VECTORS)
    real, put = (features(USER, ITEM, np.array([1]), np.array([x]), statistics, window=2)[0] for x in (B, A))
    around = [NAMES.index(name) for name in ("agreement", "neighbours")]
    np.testing.assert_array_equal(real[around], put[around])
    assert real[NAMES.index("agreement")] == pytest.approx(0.6, abs=1e-5)  # a . c
    assert real[NAMES.index("cosine")] != put[NAMES.index("cosine")]


def test_texts_add_two_cosines() -> None:
    statistics = Statistics(count(USER, ITEM, 3, window=1), VECTORS, texts=VECTORS[:, ::-1].copy())
    found = features(np.zeros(3), np.array([B, C, A]), np.array([1]), np.array([C]), statistics, window=1)[0]
    at = slice(len(NAMES), len(NAMES) + 2)  # where the trees of older detectors look for them
    assert statistics.names[at] == ("text", "text_nearest")
    np.testing.assert_allclose(found[at], [0.7, 0.8], rtol=1e-6)


def fitted(user: np.ndarray, item: np.ndarray, n_items: int):
    settings = Settings(folds=4, draws=100)
    return cross_fit(Rows(user, item, n_items), settings, np.random.default_rng(0), Progress(1, False))


def test_no_own_pair_and_nobody_of_the_same_fold_speaks() -> None:
    user, item, n_items = made_up(users=16, length=30, topics=2, per_topic=6)
    before = fitted(user, item, n_items)
    fold = before.fold[user]
    mine = np.flatnonzero(user == 3)
    mates = np.flatnonzero((fold == before.fold[3]) & (user != 3))
    others = np.flatnonzero(fold != before.fold[3])
    far = mine[:10]  # more than the window of 10 away from the last: an own pair, were it counted

    def last_after(change: np.ndarray) -> np.ndarray:
        changed = item.copy()
        changed[change] = (changed[change] + 1) % n_items
        return fitted(user, changed, n_items).features[mine[-1]]

    np.testing.assert_array_equal(last_after(far), before.features[mine[-1]])
    np.testing.assert_array_equal(last_after(mates), before.features[mine[-1]])
    assert (last_after(others) != before.features[mine[-1]]).any()


def test_counts_are_those_of_the_other_folds() -> None:
    user, item, n_items = made_up(users=16, length=6, topics=2, per_topic=6)
    found = fitted(user, item, n_items)
    for row in (0, 40, 95):
        rest = found.fold[user] != found.fold[user[row]]
        assert found.features[row, 0] == np.float32(log((item[rest] == item[row]).sum() + 1))


def test_pairs_of_a_sparse_table_are_its_entries() -> None:
    random = np.random.default_rng(0)
    dense = np.where(random.random((40, 40)) < 0.2, random.random((40, 40)), 0.0).astype(np.float32)
    first, second = random.integers(0, 40, (2, 50, 7))
    found = Counts(sparse.csr_matrix(dense), np.ones(40)).pairs(first, second)
    np.testing.assert_array_equal(found, dense[first, second])
    assert 0 < (found > 0).mean() < 1
    empty = Counts(sparse.csr_matrix((40, 40), dtype=np.float32), np.ones(40))
    np.testing.assert_array_equal(empty.pairs(first, second), np.zeros((50, 7)))
