"""Lists and frames in, answers in their order out; bad input; kept detectors."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from made_up import QUICK, made_up, with_noise

from recbole_denoiser.detect import Detector, detect_flat, detect_noise
from recbole_denoiser.errors import UserError


@pytest.fixture(scope="module")
def report(small):
    return detect_noise(small, **QUICK)


@pytest.fixture(scope="module")
def frame(small) -> pd.DataFrame:
    rows = [(f"u{u:03d}", token, 100 * u + t) for u, row in enumerate(small) for t, token in enumerate(row)]
    return pd.DataFrame(rows, columns=["who", "what", "when"])


def test_lists_return_lists(small, report) -> None:
    assert [len(part) for part in report.posterior] == [len(row) for row in small]
    assert [part.dtype for part in report.remove] == [bool] * len(small)
    assert len(report.features) == sum(map(len, small)) and report.features.shape[1] == len(report.feature_names)
    assert 0 <= report.share_interval[0] <= report.share <= report.share_interval[1] <= 1
    for removed, kept in zip(report.remove, small, strict=True):
        assert len(kept) - removed.sum() >= 2


def test_a_frame_in_any_order_has_the_posterior_of_the_lists(report, frame) -> None:
    mixed = frame.sample(frac=1, random_state=5)
    found = detect_noise(mixed, user="who", item="what", time="when", **QUICK)
    again = pd.Series(found.posterior, index=mixed.index).sort_index().to_numpy()
    np.testing.assert_array_equal(again, np.concatenate(report.posterior))
    features = pd.DataFrame(found.features, index=mixed.index).sort_index().to_numpy()
    np.testing.assert_array_equal(features, report.features)


def test_dates_sort_like_numbers(report, frame) -> None:
    dated = frame.assign(when=pd.to_datetime(frame.when, unit="s")).iloc[::-1]
    found = detect_noise(dated, user="who", item="what", time="when", **QUICK)
    np.testing.assert_array_equal(found.posterior[::-1], np.concatenate(report.posterior))


def test_repeated_rows_each_have_a_posterior(frame) -> None:
    double = pd.concat([frame, frame.iloc[:50]])
    found = detect_noise(double, user="who", item="what", time="when", **QUICK)
    assert len(found.posterior) == len(frame) + 50 and np.isfinite(found.posterior).all()


def test_texts_of_columns_and_of_a_mapping(frame) -> None:
    titles = {token: f"word{int(token[1:]) // 8} item" for token in frame.what.unique()}
    told = frame.assign(title=frame.what.map(titles), tags=[["x", "y"]] * len(frame))
    one = detect_noise(told, user="who", item="what", time="when", text="title", **QUICK)
    two = detect_noise(frame, user="who", item="what", time="when", text=titles, **QUICK)
    assert "text" in one.feature_names
    np.testing.assert_array_equal(one.posterior, two.posterior)
    both = detect_noise(told, user="who", item="what", time="when", text=["title", "tags"], **QUICK)
    assert "text_nearest" in both.feature_names


@pytest.mark.parametrize(
    "data",
    [
        [["a", "b", "c"]],
        [["a"]],
        [[], ["a"]],
        [["a"]] * 100,
        [["a"] * 10] * 10,
        [[f"only{u}"] for u in range(100)],
        [[f"{u}.{t}" for t in range(5)] for u in range(30)],
    ],
    ids=[
        "one user",
        "one item",
        "empty user",
        "singles",
        "all equal",
        "singles apart",
        "nothing shared",
    ],
)
def test_odd_data_have_a_defined_posterior(data) -> None:
    found = detect_noise(data, **QUICK)
    assert [len(part) for part in found.posterior] == [len(row) for row in data]
    flat = np.concatenate(found.posterior)
    assert ((flat >= 0) & (flat <= 1)).all()
    assert found.removed == 0 and found.verdict == "too thin to judge"
    assert "too thin to judge" in str(found)


def test_what_cannot_be_judged_is_not_called_noise() -> None:
    """Everyone draws from the same items: the share found means nothing, so no posterior (nor loss) may rest on it."""
    item = np.random.default_rng(0).integers(0, 50, 3_000)
    found = detect_flat(np.repeat(np.arange(150), 20), item, 50, **QUICK)
    assert found.verdict == "too thin to judge" and found.removed == 0
    assert found.share > 0.5 and found.share_interval[0] == 0.0
    assert found.posterior.max() < 0.01 and len(np.unique(found.posterior)) > 1  # it still ranks
    assert found.detector.score([3, 4, 5, 6]).max() < 0.01 and found.detector.score([3])[0] < 0.01


def test_items_of_several_types() -> None:
    found = detect_noise([[1, 2, 1, 2, 1]] * 30 + [["mixed", 3.5]], **QUICK)
    assert len(found.posterior[-1]) == 2 and found.removed == 0


def test_who_has_one_item_has_the_prior(small) -> None:
    found = detect_noise([*small, ["i0"]], **QUICK)
    assert found.posterior[-1][0] == found.share


def test_items_that_occur_once_or_twice_are_not_judged() -> None:
    """Half of the rows are of items of their own; put elsewhere, such an item and its copy are equally strange."""
    user, item, n_items = made_up(users=150, length=12)
    rng = np.random.default_rng(0)
    item = np.where(rng.random(len(item)) < 0.5, n_items + np.arange(len(item)), item)
    noisy, _ = with_noise(item, n_items, 0.1, "popularity")
    found = detect_flat(user, noisy, n_items + len(item), **QUICK)
    assert found.verdict == "too thin to judge" and found.removed == 0 and found.posterior.max() < 0.01


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ([], {}, "no interactions"),
        ([["a"], "abc"], {}, "sequence 1 is 'abc'"),
        ([["a", None]], {}, "sequence 0 holds None"),
        ([["a"], [float("nan")]], {}, "sequence 1 holds nan"),
        ([["a"]], {"user": "u"}, "columns of a frame"),
        ([["a"]], {"text": "title"}, "a mapping"),
        ([["a"]], {"threshold": 0}, "threshold 0"),
        ([["a"]], {"folds": 3}, "folds 3"),
        ([["a"]], {"windows": 3}, "windows is no setting"),
        (pd.DataFrame({"u": [1], "i": [2]}), {}, "needs user="),
        (pd.DataFrame({"u": [1], "i": [2]}), {"user": "u", "item": "x"}, "no column 'x'"),
        (pd.DataFrame({"u": [], "i": []}), {"user": "u", "item": "i"}, "empty"),
        (pd.DataFrame({"u": [1, None], "i": [2, 3]}), {"user": "u", "item": "i"}, "1 of 2 values are missing"),
        (
            pd.DataFrame({"u": [1, 1], "i": [2, 3], "t": [1.0, np.nan]}),
            {"user": "u", "item": "i", "time": "t"},
            "1 of 2 times are missing",
        ),
        (pd.DataFrame({"u": [1], "i": [2], "t": ["x"]}), {"user": "u", "item": "i", "time": "t"}, "numbers or dates"),
    ],
)
def test_mistakes_are_named_in_one_line(data, options, message) -> None:
    with pytest.raises(UserError, match=message) as error:
        detect_noise(data, **options)
    assert "\n" not in str(error.value)


def test_a_kept_detector_scores_the_same(tmp_path, small, report) -> None:
    detector = report.detector
    file = detector.save(tmp_path / "kept")
    assert file == tmp_path / "kept" / "detector.npz" and [p.name for p in file.parent.iterdir()] == ["detector.npz"]
    again = Detector.load(tmp_path / "kept")
    new = ["i0", "i1", "i2", "i30", "i3", "unheard of"]
    np.testing.assert_array_equal(again.score(new), detector.score(new))
    assert again.share == detector.share and again.tokens == detector.tokens


def test_new_users_are_scored_by_their_own_items_only(report) -> None:
    detector = report.detector
    found = detector.score(["i0", "i1", "i2", "i3", "i25", "i0", "i1", "i2", "i4"])
    assert found.argmax() == 4  # the only item of another topic
    assert (detector.score(["i0"]) == detector.share).all()
    assert len(detector.score([])) == 0
    assert ((found >= 0) & (found <= 1)).all()


def test_fit_returns_the_detector_of_the_report(small, report) -> None:
    sequence = small[0]
    np.testing.assert_array_equal(Detector.fit(small, **QUICK).score(sequence), report.detector.score(sequence))
    with pytest.raises(UserError, match="more data"):
        Detector.fit([["a", "b"]])


def test_a_file_that_is_no_detector(tmp_path) -> None:
    np.savez(tmp_path / "detector.npz", other=np.zeros(3))
    whole = (tmp_path / "detector.npz").read_bytes()
    with pytest.raises(UserError, match="not a detector"):
        Detector.load(tmp_path)
    for damaged in (b"something else", whole[:-30], whole[:150] + b"damaged" + whole[157:]):
        (tmp_path / "detector.npz").write_bytes(damaged)
        with pytest.raises(UserError, match=r"detector\.npz cannot be read"):
            Detector.load(tmp_path)
    with pytest.raises(UserError, match="cannot be read"):
        Detector.load(tmp_path / "nowhere")


def test_a_detector_that_lacks_any_of_its_arrays(tmp_path, report) -> None:
    with np.load(report.detector.save(tmp_path)) as stored:
        arrays = dict(stored)
    for missing in arrays:
        np.savez(tmp_path / "part.npz", **{name: value for name, value in arrays.items() if name != missing})
        with pytest.raises(UserError, match="not a detector that this package has written"):
            Detector.load(tmp_path / "part.npz")
