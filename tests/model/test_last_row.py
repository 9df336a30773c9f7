"""The fast state of the newest position is the full pass's, and the full pass runs wherever it must."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from built import Built, attention_of, build
from torch import Tensor

from recbole_denoiser.model import last_row as inference
from recbole_denoiser.model import row_parts


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each call of ``last_row`` gave a state."""
    answers: list[bool] = []
    original = inference.last_row

    def spy(*args: Any, **kwargs: Any) -> Tensor | None:
        state = original(*args, **kwargs)
        answers.append(state is not None)
        return state

    for module in ("sasrec", "bert4rec"):
        monkeypatch.setattr(f"recbole_denoiser.model.{module}.last_row", spy)
    return answers


def awake(name: str, settings: dict[str, Any], **flags: Any) -> Built:
    """A model whose weights are large enough to tell attentions apart, in double precision."""
    form = flags.pop("mask_form", "product")
    built = build(name, settings, **flags)
    if built.model.denoiser is not None:
        built.model.denoiser.config = dataclasses.replace(built.model.denoiser.config, mask_form=form)
        for site in built.model.denoiser.sites:
            site.form = form
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in built.model.parameters():
            parameter.mul_(5.0) if parameter.dim() > 1 else parameter.add_(0.1 * torch.randn_like(parameter))
    built.model.double()
    return built


def set_masks(built: Built, keep: float) -> None:
    """Phi with about this share of open entries."""
    torch.manual_seed(1)
    with torch.no_grad():
        for mask in built.model.denoiser.masks if built.model.denoiser else []:
            mask.phi.copy_(torch.rand_like(mask.phi) * 3 * torch.where(torch.rand_like(mask.phi) < keep, 1.0, -1.0))


def both(built: Built, interaction: Any) -> tuple[Tensor, Tensor]:
    """State by the fast and by the full way."""
    built.model.eval()
    with torch.no_grad():
        fast = built.model.last_state(interaction)
        built.model.fast_inference = False
        full = built.model.last_state(interaction)
        built.model.fast_inference = True
    return fast, full


CASES = [
    ("SASRecDenoiser", {"denoise": False}),
    ("SASRecDenoiser", {}),
    ("SASRecDenoiser", {"mask_per_head": True}),
    ("SASRecDenoiser", {"n_layers": 3}),
    ("SASRecDenoiser", {"mask_form": "renormalise"}),
    ("SASRecDenoiser", {"inference_gate": "expected"}),
    ("SASRecDenoiser", {"inference_gate": "hard", "mask_form": "renormalise"}),
    ("SASRecDenoiser", {"mask_form": "renormalise", "mask_per_head": True, "n_layers": 3}),
    ("SASRecDenoiser", {"mask_form": "renormalise", "n_layers": 1}),
    ("BERT4RecDenoiser", {"mask_form": "renormalise"}),
    ("SASRecDenoiser", {"n_layers": 1, "hidden_act": "relu"}),
    ("SASRecDenoiser", {"n_heads": 4, "inner_size": 24}),
    ("BERT4RecDenoiser", {}),
    ("BERT4RecDenoiser", {"denoise": False}),
]


@pytest.mark.parametrize("start", ["end", "start"])
@pytest.mark.parametrize(("name", "flags"), CASES)
def test_states_are_those_of_the_full_pass(
    name: str, flags: dict[str, Any], start: str, settings: dict[str, Any], counted: list[bool]
) -> None:
    built = awake(name, settings, position_from=start, MAX_ITEM_LIST_LENGTH=12, **flags)
    interaction, _ = built.test_batch()
    assert len(set(interaction["item_length"].tolist())) > 3  # there is padding
    for keep in (1.0, 0.5, 0.1):
        set_masks(built, keep)
        fast, full = both(built, interaction)
        torch.testing.assert_close(fast, full, atol=1e-9, rtol=1e-9)
        assert float(full.std()) > 0.1
    built.model.float()
    fast, full = both(built, interaction)
    torch.testing.assert_close(fast, full, atol=1e-5, rtol=1e-5)
    assert counted and all(counted)


@pytest.mark.parametrize("form", ["product", "renormalise"])
@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (1, 2), (0, 1, 2)])
def test_closed_rows_need_no_keys(
    closed: tuple[int, ...], form: str, settings: dict[str, Any], counted: list[bool]
) -> None:
    """The newest row of some layers is closed; with the top one closed the others' keys are not even looked at."""
    built = awake("SASRecDenoiser", settings, n_layers=3, mask_form=form)
    set_masks(built, 0.5)
    with torch.no_grad():
        for layer in closed:
            built.model.denoiser.masks[layer].phi[-1] = -1.0
    interaction, _ = built.test_batch()
    fast, full = both(built, interaction)
    torch.testing.assert_close(fast, full, atol=1e-9, rtol=1e-9)
    assert counted == [True]


@pytest.mark.parametrize("form", ["product", "renormalise"])
def test_chunks_change_nothing(form: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    built = awake("SASRecDenoiser", settings, mask_form=form)
    set_masks(built, 0.5)
    interaction, _ = built.test_batch()
    monkeypatch.setattr(row_parts, "CACHE_NUMBERS", 7 * 10 * (2 * 10 + 4 * 16))  # 7 sequences
    fast, full = both(built, interaction)
    assert len(fast) > 7
    torch.testing.assert_close(fast, full, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("SASRecDenoiser", {"mask": "content"}),
        ("SASRecEntmax", {}),
        ("SASRecEntmax", {"denoise": True}),
        ("SASRecSparse", {"stride": 3, "summary": 1}),
        ("SSEPTDenoiser", {}),
        ("TiSASRecDenoiser", {}),
    ],
)
def test_other_models_run_the_full_pass(
    name: str, flags: dict[str, Any], settings: dict[str, Any], counted: list[bool]
) -> None:
    built = build(name, settings, **flags)
    fast, full = both(built, built.test_batch()[0])
    assert torch.equal(fast, full) and not any(counted)


def test_full_pass_when_it_is_wanted_or_needed(settings: dict[str, Any], counted: list[bool]) -> None:
    built = build("SASRecDenoiser", settings)
    interaction, _ = built.test_batch()
    assert all(weights.shape[-1] == weights.shape[-2] for weights in attention_of(built, interaction))  # hooks
    assert counted == [False]
    built.model.last_state(interaction)  # with gradients
    built.model.train()
    with torch.no_grad():
        built.model.last_state(interaction)
    built.model.eval()
    assert counted == [False]
    empty = {name: interaction[name].clone() for name in interaction.columns}
    empty["item_length"][0], empty["item_id_list"][0] = 0, 0
    fast, full = both(built, empty)
    assert torch.equal(fast, full) and counted == [False, False]
    built = build("SASRecDenoiser", settings, fast_inference=False)
    with torch.no_grad():
        built.model.last_state(interaction)
    assert counted == [False, False]


@pytest.mark.parametrize("start", ["end", "start"])
def test_kept_attentions_are_counted_as_by_the_full_pass(start: str, settings: dict[str, Any]) -> None:
    built = build("SASRecDenoiser", settings, position_from=start)
    set_masks(built, 0.5)
    built.model.eval()
    shares = []
    for fast in (True, False):
        built.model.fast_inference = fast
        with torch.no_grad(), built.model.counting_kept():
            for interaction, candidates in built.data.test:
                built.model.score_candidates(interaction, candidates)
        shares.append(built.model.kept_share())
    assert shares[0] == shares[1] and 0.3 < shares[0][0] < 0.7
