"""Small models that the core tests attach to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

N_ITEMS = 20


class Encoder(nn.Module):
    """Embedding, causal or bidirectional Transformer layers of the given kind, next-item loss per position."""

    def __init__(self, layers: list[nn.Module], d: int = 8, n: int = 6, causal: bool = True) -> None:
        super().__init__()
        self.items = nn.Embedding(N_ITEMS, d, padding_idx=0)
        self.positions = nn.Embedding(n, d)
        self.layers = nn.ModuleList(layers)
        self.causal = causal

    def attention_mask(self, items: Tensor) -> Tensor:
        """[B, 1, m, m] of 0 and -10000, as RecBole makes it."""
        m = items.shape[1]
        allowed = (items != 0)[:, None, None, :].expand(-1, 1, m, m)
        allowed = allowed.tril() if self.causal else allowed
        return torch.where(allowed, 0.0, -10000.0)

    def forward(self, items: Tensor) -> Tensor:
        x = self.items(items) + self.positions.weight[: items.shape[1]]
        mask = self.attention_mask(items).to(x.dtype)
        for layer in self.layers:
            x = layer(x, mask)
        return x  # [B, m, d]

    def losses(self, items: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy at every position: [B, m]."""
        logits = self(items) @ self.items.weight.T
        return F.cross_entropy(logits.transpose(1, 2), targets, reduction="none")


class SoftmaxAttention(nn.Module):
    """Attention with an nn.Softmax child, named as in RecBole."""

    def __init__(self, d: int, heads: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.num_attention_heads = heads
        self.query, self.key, self.value = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.softmax = nn.Softmax(dim=-1)
        self.attn_dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (p(x).unflatten(-1, (self.num_attention_heads, -1)).transpose(1, 2) for p in self.projections())
        A = self.softmax(q @ k.transpose(2, 3) / q.shape[-1] ** 0.5 + mask)
        return (self.attn_dropout(A) @ v).transpose(1, 2).flatten(2)

    def projections(self) -> tuple[nn.Module, nn.Module, nn.Module]:
        return self.query, self.key, self.value


class DropoutAttention(nn.Module):
    """Attention in minGPT's manner: a fused projection, functional softmax, a dropout child."""

    def __init__(self, d: int, heads: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.n_head = heads
        self.c_attn = nn.Linear(d, 3 * d)
        self.attn_dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (p.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for p in self.c_attn(x).chunk(3, -1))
        A = F.softmax(q @ k.transpose(2, 3) / q.shape[-1] ** 0.5 + mask, dim=-1)
        return (self.attn_dropout(A) @ v).transpose(1, 2).flatten(2)


class Block(nn.Module):
    """Post-LayerNorm Transformer layer around an attention."""

    def __init__(self, attention: nn.Module, d: int = 8, dropout: float = 0.0) -> None:
        super().__init__()
        self.attention = attention
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.feed_forward = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.norm1(x + self.dropout(self.attention(x, mask)))
        return self.norm2(x + self.dropout(self.feed_forward(x)))


def softmax_encoder(
    layers: int = 2, d: int = 8, n: int = 6, heads: int = 1, p: float = 0.0, causal: bool = True
) -> Encoder:
    return Encoder([Block(SoftmaxAttention(d, heads, p), d, p) for _ in range(layers)], d, n, causal)


def dropout_encoder(layers: int = 2, d: int = 8, n: int = 6, heads: int = 1, p: float = 0.0) -> Encoder:
    return Encoder([Block(DropoutAttention(d, heads, p), d, p) for _ in range(layers)], d, n)


def recbole_model(name: str, n: int = 6, p: float = 0.0) -> nn.Module:
    """A RecBole model with two attention layers, from a hand-made configuration and no data files."""
    from recbole.utils import get_model

    settings: dict[str, Any] = {
        "USER_ID_FIELD": "user_id", "ITEM_ID_FIELD": "item_id", "LIST_SUFFIX": "_list", "NEG_PREFIX": "neg_",
        "ITEM_LIST_LENGTH_FIELD": "item_length", "MAX_ITEM_LIST_LENGTH": n, "device": torch.device("cpu"),
        "n_layers": 2, "n_heads": 2, "hidden_size": 8, "embedding_size": 8, "inner_size": 16,
        "hidden_dropout_prob": p, "attn_dropout_prob": p, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
        "initializer_range": 0.3, "loss_type": "CE", "mask_ratio": 0.3, "MASK_FIELD": "mask",
        "ft_ratio": 0.5, "transform": "mask_itemseq", "dnn_type": "trm", "sess_dropout": 0.0, "item_dropout": 0.0,
        "temperature": 0.1, "step": 1, "weight": 0.6, "reg_weight": 1e-5,
        "use_proj_bias": True, "post_remove_context": 0, "n_facet_all": 5,
        "n_facet": 1, "n_facet_window": 0, "n_facet_hidden": 1,
        "n_facet_MLP": -1, "n_facet_context": 1, "n_facet_reranker": 1, "n_facet_emb": 2, "weight_mode": "",
        "context_norm": 1, "partition_merging_mode": "replace", "reranker_merging_mode": "replace",
        "reranker_CAN_NUM": "5",
    }  # fmt: skip
    config = _Config(settings)
    dataset = SimpleNamespace(num=lambda field: N_ITEMS, field2seqlen={"item_id_list": n})
    return get_model(name)(config, dataset)


class _Config(dict[str, Any]):
    """Answers None for unknown keys, as RecBole's Config does."""

    def __missing__(self, key: str) -> None:
        return None


def items_and_targets(B: int = 3, m: int = 6, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Right-padded histories (the last row is the shortest) and the next item of every position."""
    generator = torch.Generator().manual_seed(seed)
    items = torch.randint(1, N_ITEMS, (B, m), generator=generator)
    targets = torch.randint(1, N_ITEMS, (B, m), generator=generator)
    items[-1, m - m // 2 :] = 0
    return items, targets
