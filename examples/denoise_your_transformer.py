"""Trainable attention masks on a Transformer of your own: attach, train, save, load, bake.

python examples/denoise_your_transformer.py

The task: the next item is the item two places back. An attention layer has to look there and nowhere else, so of its
36 weights 10 matter. Needs torch alone, not RecBole.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recbole_denoiser.core import DenoiserConfig, denoise

LENGTH, WIDTH, ITEMS = 6, 32, 12


class Attention(nn.Module):
    """Self-attention as you may have written it: nothing here knows about masks."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(self.query(x), self.key(x), self.value(x), is_causal=True)


class Transformer(nn.Module):
    """Items and positions, one attention layer, a score for every item at every position."""

    def __init__(self) -> None:
        super().__init__()
        self.items, self.positions = nn.Embedding(ITEMS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.attention = Attention()
        self.head = nn.Linear(WIDTH, ITEMS)

    def forward(self, items: Tensor) -> Tensor:
        return self.head(self.attention(self.items(items) + self.positions.weight[: items.shape[1]]))


def batch(size: int = 64) -> tuple[Tensor, Tensor, Tensor]:
    """Histories, the item two places back, and weights that leave out the first two positions."""
    items = torch.randint(1, ITEMS, (size, LENGTH))
    weights = torch.zeros(size, LENGTH)
    weights[:, 2:] = 1 / (size * (LENGTH - 2))
    return items, items.roll(2, 1), weights


def main(steps: int = 250) -> None:
    """Train masks and model together, then keep both."""
    torch.manual_seed(0)
    config = DenoiserConfig(max_length=LENGTH, beta=0.3)
    model = Transformer()
    denoiser = denoise(model, config)  # finds the attention by itself
    groups = [{"params": model.parameters(), "lr": 0.01}, {"params": denoiser.parameters(), "lr": 0.05}]
    optimizer = torch.optim.Adam(groups)
    for _ in range(steps):
        items, targets, weights = batch()

        def losses(items: Tensor = items, targets: Tensor = targets) -> Tensor:  # one loss per position
            return F.cross_entropy(model(items).transpose(1, 2), targets, reduction="none")

        optimizer.zero_grad()
        denoiser.loss(losses, weights=weights).total.backward()
        optimizer.step()
    print(f"kept: {denoiser.kept_share()[0]:.0%} of the attention weights")

    # The masks are not in model.state_dict(): save both.
    saved = {"model": model.state_dict(), "masks": denoiser.state_dict()}
    again = Transformer()
    masks = denoise(again, config)
    again.load_state_dict(saved["model"])
    masks.load_state_dict(saved["masks"])

    # For deployment: the gates become constants of the model, which then needs no denoiser.
    masks.bake()
    items, targets, _ = batch()
    with torch.no_grad():
        assert torch.equal(again(items), model(items))
        hit = (again(items).argmax(-1) == targets)[:, 2:].float().mean()
        exported = torch.export.export(again, (items,))
    print(f"right: {hit:.0%}; in the baked model's state_dict: {[key for key in exported.state_dict if 'gate' in key]}")


if __name__ == "__main__":
    main()
