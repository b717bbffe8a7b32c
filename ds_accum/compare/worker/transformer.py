"""A small causal transformer: the model of the built-in workload."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["IGNORE_INDEX", "CausalTransformer"]

IGNORE_INDEX = -100


class CausalTransformer(nn.Module):
    """`forward(input_ids[B, T], labels[B, T])` is the mean loss over the labels that are not -100, a float32 scalar.

    Labels are those of the next position already. In float64 the loss is float64. `attention_bias` adds one to the
    queries, keys and values; that of the keys has no gradient but rounding errors, which Adam makes whole steps of.
    """

    def __init__(
        self,
        *,
        layers: int,
        width: int,
        heads: int,
        vocabulary: int,
        sequence_length: int,
        attention_bias: bool = False,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        # As torch makes them, embeddings are so large that fp32 rounds much of a small update away.
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.positions = nn.Parameter(torch.randn(sequence_length, width) * 0.1)
        self.blocks = nn.ModuleList(Block(width, heads, attention_bias=attention_bias) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, input_ids: Tensor, labels: Tensor) -> Tensor:
        hidden = self.embedding(input_ids) + self.positions[: input_ids.shape[1]]
        for block in self.blocks:
            hidden = block(hidden)
        logits = self.head(self.norm(hidden)).flatten(0, 1)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        return F.cross_entropy(logits, labels.flatten(), ignore_index=IGNORE_INDEX)


class Block(nn.Module):
    """Attention and an MLP, each behind a layer norm: [B, T, width] to the same."""

    def __init__(self, width: int, heads: int, *, attention_bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.norm_before_attention = nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width, bias=attention_bias)
        self.attention_out = nn.Linear(width, width)
        self.norm_before_mlp = nn.LayerNorm(width)
        self.mlp = nn.Linear(width, 4 * width)
        self.mlp_out = nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        batch, length, width = hidden.shape
        split = self.attention(self.norm_before_attention(hidden)).view(batch, length, 3, self.heads, -1)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.attention_out(mixed.transpose(1, 2).reshape(batch, length, width))
        changed: Tensor = hidden + self.mlp_out(F.gelu(self.mlp(self.norm_before_mlp(hidden))))
        return changed
