"""The data behind the explain page is what the model computes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from trained import scores_without_column

from recbole_denoiser.analysis.capture import attention_sites, recorded, rollout
from recbole_denoiser.analysis.explain import explain, when
from recbole_denoiser.analysis.histories import histories_of, user_history
from recbole_denoiser.analysis.recommend import Recommender
from recbole_denoiser.cli.main import main
from recbole_denoiser.core import gate
from recbole_denoiser.errors import UserError

ONE = np.zeros(1, dtype=int)


@pytest.fixture(scope="module")
def explained(noisy: Recommender) -> Any:
    return explain(noisy, [user_history(noisy, user) for user in ("u1", "u2", "u3", "u4")], k=5)


def test_attention_is_that_of_the_layer_and_the_model_is_left_alone(noisy: Recommender) -> None:
    """Layer 1 against softmax(QK'/sqrt(d)) written out; scores as without listening."""
    model = noisy.model
    given = noisy.histories([["i1", "i2", "i9", "i4", "i7"]])
    plain = noisy.scores(given, ONE)
    rules = [site.rule for site in model.denoiser.sites]
    with torch.no_grad(), attention_sites(model) as sites, recorded(sites) as layers:
        listened = noisy.scores(given, ONE)
    torch.testing.assert_close(plain, listened)  # the other way may be a shorter one
    assert [site.rule for site in model.denoiser.sites] == rules
    batch, _ = model.inference_batch(noisy.interaction(given, ONE))
    with torch.no_grad():
        x, bias = model.embed(batch)
        attention = model.trm_encoder.layer[0].multi_head_attention
        Q, K = (part(x).unflatten(-1, (2, -1)).transpose(1, 2) for part in (attention.query, attention.key))
        A = torch.softmax(Q @ K.transpose(2, 3) / (x.shape[-1] / 2) ** 0.5 + bias, -1)
        Z = gate(model.denoiser.masks[0].phi)[-5:, -5:]
    torch.testing.assert_close(layers[0].A, A)
    assert layers[0].Z is not None
    torch.testing.assert_close(layers[0].Z[0, 0], Z)
    torch.testing.assert_close(layers[0].M, A * Z)


def test_masks_off_is_the_denoiser_switched_off(noisy: Recommender) -> None:
    given = noisy.histories([["i1", "i2", "i9", "i4", "i7"]])
    with torch.no_grad(), attention_sites(noisy.model) as sites, recorded(sites, masks_on=False):
        off = noisy.scores(given, ONE)
    noisy.model.denoiser.off()
    try:
        switched = noisy.scores(given, ONE)
    finally:
        noisy.model.denoiser.on()
    torch.testing.assert_close(off, switched)
    assert not torch.allclose(off, noisy.scores(given, ONE))


def test_unread_is_a_mask_that_cuts_one_column(noisy: Recommender) -> None:
    """The same as Phi closed in that column (but for its own row) in every layer."""
    given = noisy.histories([["i1", "i2", "i9", "i4"]])
    with torch.no_grad(), attention_sites(noisy.model) as sites, recorded(sites, unread=torch.tensor([1])):
        unread = noisy.scores(given, ONE)
    closed = scores_without_column(noisy, given, ONE, noisy.n - 4 + 1)
    torch.testing.assert_close(unread, closed)
    assert not torch.allclose(unread, noisy.scores(given, ONE))


def test_rollout_by_hand() -> None:
    first = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    second = torch.tensor([[1.0, 0.0], [0.25, 0.0]])
    # W2 row 1 = (0.25, 1) / 1.25 = (0.2, 0.8); W1 = [[1, 0], [0.25, 0.75]]
    np.testing.assert_allclose(rollout([first, second], 1), [0.2 + 0.8 * 0.25, 0.8 * 0.75])
    np.testing.assert_allclose(rollout([torch.zeros(2, 2)] * 3, 1), [0, 1])


def test_numbers_of_a_user(noisy: Recommender, explained: Any) -> None:
    user = explained.data["users"][0]
    history = user_history(noisy, "u1")
    given = noisy.histories([noisy.items[history.item].tolist()])
    scores = noisy.scores(given, ONE)[0]
    assert [entry["item"] for entry in user["items"]] == noisy.items[history.item].tolist()
    assert user["next"]["item"] == noisy.items[history.next]
    scores[torch.from_numpy(np.setdiff1d(history.seen, [history.next]))] = -torch.inf
    order = scores.argsort(descending=True).tolist()
    assert [entry["item"] for entry in user["on"]] == noisy.items[order[:5]].tolist()
    assert user["next"]["rank"] == order.index(history.next) + 1
    assert sum(user["contribution"]) == pytest.approx(1, abs=1e-3)
    assert len(user["without"]) == len(user["items"])
    assert user["without"][user["last"]]["change"] == [0.0] * 5  # the last position has no reader
    # the complete mask, whose corner the user's gate is
    m = len(user["items"])
    corner = [row[8 - m :] for row in explained.data["masks"][1][0][8 - m :]]
    assert user["layers"][1]["gate"][0] == corner


def test_injected_noise_is_marked(noisy: Recommender, explained: Any, toy: Path) -> None:
    """What was replaced, against the atomic file itself."""
    lines = [line.split("\t") for line in (toy / "toy" / "toy.inter").read_text().splitlines()[1:]]
    marked = 0
    for user in explained.data["users"]:
        own = sorted((float(time), item) for name, item, time in lines if name == user["user"])
        for place, entry in enumerate(reversed(user["items"])):
            time, original = own[-2 - place]  # the newest is the held-out item
            assert entry["time"] == time
            if entry["noise"] is None:
                assert entry["item"] == original
            else:
                marked += 1
                assert entry["noise"]["item"] == original != entry["item"]
    assert marked >= 3


def test_tensors_are_what_bertviz_takes(explained: Any, noisy: Recommender) -> None:
    attention, tokens = explained.bertviz("u2", masked=False)
    masked, _ = explained.bertviz("u2")
    m = len(explained.data["users"][1]["items"])
    assert [tuple(layer.shape) for layer in attention] == [(1, 2, m, m)] * 2
    assert len(tokens) == m
    torch.testing.assert_close(attention[0].sum(-1), torch.ones(1, 2, m))
    assert (masked[0] == 0).sum() > (attention[0] == 0).sum()


@pytest.mark.parametrize(
    ("model", "start"),
    [
        ("SASRec", "start"), ("BERT4Rec", "start"), ("SASRecDenoiser", "start"), ("SASRecDenoiser", "end"),
        ("BERT4RecDenoiser", "start"), ("BERT4RecDenoiser", "end"),
    ],
)  # fmt: skip
def test_models_of_both_packages(train_toy: Any, model: str, start: str) -> None:
    own = model.endswith("Denoiser")
    changes = {"position_from": start, "mask": "content", "mask_per_head": True} if own else {}
    recommender = Recommender.load(train_toy(model, epochs=1, **changes))
    for length in (1, 3, 8):
        tokens = [f"i{number}" for number in range(length)]
        history = histories_of(recommender, recommender.histories([tokens]))
        data = explain(recommender, history, k=3).data
        (user,) = data["users"]
        bidirectional = model.startswith("BERT")
        names = [entry["item"] for entry in user["items"]]
        if bidirectional and start == "start":  # RecBole drops the oldest item to make room for the mask token
            assert names == [*tokens[1:], "[next item]"]
        elif bidirectional:
            assert names == [*tokens, "[next item]"][-8:]
        else:
            assert names == tokens
        assert user["last"] == len(names) - 1
        rows = user["layers"][0]["attention"][0]
        sums = [sum(row) for row in rows]
        np.testing.assert_allclose(sums, 1, atol=2e-3)  # all the weight is on positions that are shown
        assert user["causal"] == (not bidirectional or len(names) == 1)
        if own:
            assert len(user["layers"][0]["gate"]) == 2
        else:
            assert user["off"] is None and data["mask"] is None


def test_a_model_without_attention_cannot_be_explained(train_toy: Any) -> None:
    recommender = Recommender.load(train_toy("GRU4Rec", epochs=1))
    with pytest.raises(UserError, match="No attention was found in GRU4Rec"):
        explain(recommender, [user_history(recommender, "u1")])


def test_times_as_dates() -> None:
    assert when(881250949.0) == "1997-12-04 15:55"
    assert when(7.0) == "7"
    assert when(None) == ""


def test_command_writes_page_json_and_tensors(noisy_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "mine.csv").write_text("user,item\nme,i3\nme,i4\n")
    files = [tmp_path / name for name in ("page.html", "data.json", "attention.pt")]
    arguments = ["--run", str(noisy_run), "--user", "u5", "--user", "u6", "--input", str(tmp_path / "mine.csv")]
    outputs = [f"--{name}={file}" for name, file in zip(("output", "json", "tensors"), files, strict=True)]
    assert main(["explain", *arguments, *outputs]) == 0
    assert str(files[0]) in capsys.readouterr().out
    data = json.loads(files[1].read_text(encoding="utf-8"))
    assert [user["user"] for user in data["users"]] == ["u5", "u6", "me"]
    assert data["users"][2]["items"][0]["time"] is None
    tensors = torch.load(files[2], weights_only=True)
    assert tensors["me"]["tokens"] == ["i3", "i4"]
    assert main(["explain", "--run", str(noisy_run), "--user", "nobody"]) == 2
    assert "no user 'nobody'" in capsys.readouterr().err
