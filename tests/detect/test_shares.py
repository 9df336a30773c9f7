"""Shares, posterior and expected quality where the truth is known exactly."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from recbole_denoiser.detect import mixture, quality
from recbole_denoiser.detect.expect import expected_auc, precision_recall
from recbole_denoiser.detect.follow import Prior, at_zero
from recbole_denoiser.detect.forest import Forest, grow
from recbole_denoiser.detect.posterior import Posterior, ranking
from recbole_denoiser.detect.quality import auc
from recbole_denoiser.detect.removal import protect
from recbole_denoiser.errors import UserError


def column(first: np.ndarray | float, second: np.ndarray | float, size: int) -> np.ndarray:
    return np.column_stack([np.broadcast_to(first, size), np.broadcast_to(second, size)]).astype(float)


def test_two_separate_densities_have_exactly_their_shares() -> None:
    span = np.linspace(1, 2, 100)
    uniform, popular, clean = column(span, -20, 100), column(-20, span, 100), column(-50, -50, 500)
    data = np.concatenate([uniform] * 3 + [popular] * 2 + [clean])
    counted = mixture.tails(data, np.zeros(1000, int), [uniform, popular], [np.zeros(100, int)] * 2, 1)
    bounds = mixture.bounds(counted)
    np.testing.assert_allclose(bounds, np.tile([0.3, 0.2], (len(mixture.TAUS), 1)), atol=1e-9)
    np.testing.assert_allclose(mixture.shares(bounds, bounds[None], 1000)[0], [0.3, 0.2], atol=1e-9)


def test_two_normal_densities() -> None:
    """Clean N(-2, 1), injected N(2, 1), a fifth of the data injected."""
    rng = np.random.default_rng(0)
    injected = rng.normal(2, 1, (40_000, 1))
    data = np.concatenate([rng.normal(-2, 1, (16_000, 1)), rng.normal(2, 1, (4_000, 1))])
    group = rng.integers(0, 100, len(data))
    counted = mixture.tails(data, group, [injected], [rng.integers(0, 100, 40_000)], 100)
    again = mixture.bootstrap(counted, 40, rng)
    share, sums = mixture.shares(mixture.bounds(counted), again, len(data))
    assert abs(share[0] - 0.2) < 0.01
    low, high = mixture.interval(share[0], sums, 0.95)
    assert low < share[0] < high and high - low < 0.03


def test_two_thousand_rows_are_enough_where_noise_stands_apart() -> None:
    """A quarter of 2,000 rows; the smallest of the bounds would be 0.05 too small."""
    errors, smallest = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        injected = rng.normal(3, 1, (10_000, 1))
        noise = rng.random(2_000) < 0.25
        data = np.where(noise, rng.normal(3, 1, 2_000), rng.normal(-3, 1, 2_000))[:, None]
        groups = np.arange(2_000) % 100, np.arange(10_000) % 100
        counted = mixture.tails(data, groups[0], [injected], [groups[1]], 100)
        found = mixture.bounds(counted)
        share, _ = mixture.shares(found, mixture.bootstrap(counted, 10, rng), len(data))
        errors.append(share[0] - noise.mean())
        smallest.append(found.min() - noise.mean())
    assert max(np.abs(errors)) < 0.03 and np.mean(smallest) < -0.04


def test_following_is_the_expectation_given_the_curve() -> None:
    """Against the joint normal distribution of a (with a wide prior) and the curve; a falling line counts as level."""
    taus, v, prior = np.array([0.1, 0.2, 0.5]), 1e-4, Prior(0.2, 0.05)
    curve, wide = np.array([0.12, 0.13, 0.2]), 1e3
    covariance = (
        np.array([[v / max(s, t) + 0.05**2 * min(s, t) + 0.2**2 * s * t for s in taus] for t in taus]) + wide**2
    )
    expected = wide**2 * np.ones(3) @ np.linalg.solve(covariance, curve)
    np.testing.assert_allclose(at_zero(taus, curve[None], v, prior), [expected], rtol=1e-3)
    assert 0.1 < expected < 0.12
    np.testing.assert_allclose(at_zero(taus, np.full((1, 3), 0.3), v, prior), [0.3])
    falling = at_zero(taus, curve[None, ::-1], v, prior)[0]
    assert 0.12 < falling < 0.2


def test_few_rows_look_at_wide_tails_and_many_at_narrow_ones() -> None:
    curve = np.array([[0.1, 0.1, 0.2, 0.2]])
    few, many = (at_zero(np.array([0.05, 0.1, 0.5, 0.7]), curve, v, Prior(0.001, 0.01))[0] for v in (1e-2, 1e-7))
    assert few > 0.15 and abs(many - 0.1) < 0.01


def test_linear_program() -> None:
    """Two kinds, two sets: 0.5 a + 0.1 b <= 0.1 and 0.1 a + 0.5 b <= 0.2 meet at a = 1/8, b = 3/8; the other tau has none."""
    injected, data = np.array([[0.5, 0.3, 0.1], [0.1, 0.2, 0.5]]), np.array([0.1, 0.0, 0.2])
    found = mixture.largest(injected, data, np.array([0, 1, 0]), 2)
    np.testing.assert_allclose(found, [[0.125, 0.375], [0.0, 0.0]], atol=1e-9)


def test_unmix_takes_uniform_items_out_of_the_popular() -> None:
    a, b = 0.2, 0.1  # b P = B ((1 - a) P + a U)
    found = np.array([a - a * b / (1 - a), b / (1 - a)])
    np.testing.assert_allclose(mixture.unmix(found), [a, b], atol=1e-12)


def test_posterior_is_exact_for_known_densities_and_never_falls() -> None:
    rng = np.random.default_rng(1)
    clean, noise = rng.normal(-1, 1, 80_000), rng.normal(1, 1, 20_000)
    injected = rng.normal(1, 1, 100_000)
    curve = Posterior.fit(np.concatenate([clean, noise]), [injected], np.array([0.2]))
    at = np.linspace(-2, 2, 9)
    exact = 0.2 / (0.2 + 0.8 * np.exp(-2 * at))  # N(1, 1) / N(-1, 1) = exp(2 x)
    np.testing.assert_allclose(curve(at), exact, atol=0.04)
    assert (np.diff(curve(np.linspace(-9, 9, 1000))) >= 0).all()
    assert curve(np.array([-9.0, 9.0])).min() >= 0 and curve(np.array([-9.0, 9.0])).max() <= 1


def test_ranking_is_the_logarithm_of_the_expected_density() -> None:
    scores = np.log([[2.0, 3.0], [0.5, 1.0]])
    np.testing.assert_allclose(ranking(scores, np.array([0.1, 0.2])), np.log([0.8, 0.25]))


def test_expected_quality_is_the_true_one() -> None:
    rng = np.random.default_rng(2)
    clean, noise, injected = rng.normal(0, 1, 30_000), rng.normal(1, 1, 10_000), rng.normal(1, 1, 40_000)
    data, shares = np.concatenate([clean, noise]), [0.25]
    label = np.repeat([False, True], [30_000, 10_000])
    assert abs(expected_auc(data, [injected], shares) - roc_auc_score(label, data)) < 0.01
    found = precision_recall(np.array([0.7]), data, [injected], shares)
    gone = data > 0.7
    assert abs(found["precision"][0] - label[gone].mean()) < 0.02
    assert abs(found["recall"][0] - gone[label].mean()) < 0.02
    assert abs(found["removed"][0] - gone.mean()) < 1e-9


def test_expected_quality_where_noise_is_in_one_of_two_groups() -> None:
    """Half of the injected items stand where there is no noise: they say nothing about it."""
    rng = np.random.default_rng(5)
    clean, noise = rng.normal(0, 1, 36_000), rng.normal(1, 1, 4_000)
    injected = np.concatenate([rng.normal(1, 1, 20_000), rng.normal(9, 1, 20_000)])
    shares = [np.repeat([0.2, 0.0], 20_000)]  # of a half: a tenth of all
    data, label = np.concatenate([clean, noise]), np.repeat([False, True], [36_000, 4_000])
    assert abs(expected_auc(data, [injected], shares) - roc_auc_score(label, data)) < 0.01
    found, gone = precision_recall(np.array([0.7]), data, [injected], shares), data > 0.7
    assert abs(found["precision"][0] - label[gone].mean()) < 0.02
    assert abs(found["recall"][0] - gone[label].mean()) < 0.02


def test_auc_with_ties_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(3)
    score, label = rng.integers(0, 5, 300), rng.random(300) < 0.3
    assert auc(score, label) == pytest.approx(roc_auc_score(label, score))
    assert np.isnan(auc(score, np.zeros(300, bool)))


def test_quality() -> None:
    found = quality(np.array([0.9, 0.6, 0.2, 0.1]), np.array([1, 0, 1, 0]))
    assert found == {"auc": 0.75, "precision": 0.5, "recall": 0.5}
    with pytest.raises(UserError, match="3 labels for 4"):
        quality(np.zeros(4), np.zeros(3))


def test_every_user_keeps_the_two_least_suspicious() -> None:
    user = np.array([0, 0, 0, 0, 1, 1, 2, 3, 3, 3])
    posterior = np.array([0.9, 0.7, 0.8, 0.7, 0.9, 0.9, 0.9, 0.1, 0.9, 0.2])
    gone = protect(user, posterior, posterior > 0.5)
    np.testing.assert_array_equal(gone, [1, 0, 1, 0, 0, 0, 0, 0, 1, 0])


def test_forest_returns_the_scores_of_scikit_learn() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(3_000, 5)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] + 0.5 * rng.normal(size=3_000) > 0).astype(int)
    model = grow(x, y, trees=30, seed=0)
    np.testing.assert_allclose(Forest.of(model).score(x), model.decision_function(x), atol=1e-9)
    np.testing.assert_allclose(Forest.of(model, 0.5).score(x[:3]), model.decision_function(x[:3]) + 0.5, atol=1e-9)
