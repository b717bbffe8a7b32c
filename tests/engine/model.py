"""A causal language model of one block and 17,280 parameters, and its data: what every run of the engine trains here."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from cases import LENGTH, Case, Dtype, valid_length
from torch import Tensor, nn

VOCABULARY = 64
WIDTH = 32
HEADS = 4
IGNORE_INDEX = -100

DTYPES: dict[Dtype, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class _Overflow(torch.autograd.Function):
    """The identity, with a gradient that is not finite."""

    @staticmethod
    def forward(_: Any, inputs: Tensor) -> Tensor:
        return inputs.clone()

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        return torch.full_like(gradient, float("inf"))


class LanguageModel(nn.Module):
    """`forward(input_ids[B, T], labels[B, T])` is the mean, or sum, of the losses where labels are not -100: a scalar.

    With `shift`, position t predicts label t + 1, and the first label of each sample is dropped; without, label t.
    """

    def __init__(self, *, reduction: str = "mean", shift: bool = False) -> None:
        super().__init__()
        self.reduction, self.shift = reduction, shift
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.1)
        self.norm_before_attention = nn.LayerNorm(WIDTH)
        # A bias of the keys would have no gradient but rounding errors, which Lion takes the sign of.
        self.attention = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.attention_out = nn.Linear(WIDTH, WIDTH)
        self.norm_before_mlp = nn.LayerNorm(WIDTH)
        self.mlp = nn.Linear(WIDTH, 4 * WIDTH)
        self.mlp_out = nn.Linear(4 * WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, input_ids: Tensor, labels: Tensor, *, overflow: bool = False) -> Tensor:
        logits, labels = self._logits_and_labels(input_ids, labels, overflow=overflow)
        # With no label to count, the mean is NaN and its gradient 0.
        return F.cross_entropy(logits, labels, ignore_index=IGNORE_INDEX, reduction=self.reduction)

    def sums_of_losses(self, input_ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The summed loss of each sample and how many labels it counts: both [B]."""
        logits, flat = self._logits_and_labels(input_ids, labels)
        losses = F.cross_entropy(logits, flat, ignore_index=IGNORE_INDEX, reduction="none")
        batch = input_ids.shape[0]
        return losses.view(batch, -1).sum(dim=1), (flat != IGNORE_INDEX).view(batch, -1).sum(dim=1)

    def _logits_and_labels(self, input_ids: Tensor, labels: Tensor, *, overflow: bool = False) -> tuple[Tensor, Tensor]:
        """[N, V] and [N], N being all positions that have a label."""
        logits = self.head(self.norm(self._hidden(input_ids)))
        if overflow:
            logits = _Overflow.apply(logits)
        if logits.dtype != torch.float64:
            logits = logits.float()
        if self.shift:
            logits, labels = logits[:, :-1], labels[:, 1:]
        return logits.reshape(-1, VOCABULARY), labels.reshape(-1)

    def _hidden(self, input_ids: Tensor) -> Tensor:
        batch, length = input_ids.shape
        at = torch.arange(length) % LENGTH
        hidden = self.embedding(input_ids) + self.positions[at]
        heads = self.attention(self.norm_before_attention(hidden)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        scores = (query @ key.transpose(-1, -2)) / math.sqrt(WIDTH // HEADS)
        future = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
        weights = scores.masked_fill(future, float("-inf")).softmax(-1)
        mixed = (weights @ value).transpose(1, 2).reshape(batch, length, WIDTH)
        hidden = hidden + self.attention_out(mixed)
        return hidden + self.mlp_out(F.gelu(self.mlp(self.norm_before_mlp(hidden))))


def initial_model(case: Case) -> LanguageModel:
    """The same parameters in every run, in float32, with values that the case's precision has too."""
    torch.manual_seed(0)
    model = LanguageModel(reduction=case.loss, shift=case.shift)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(DTYPES[case.dtype]).float()
    return model


def batch_of(case: Case, window: int, samples: range) -> dict[str, Tensor]:
    """`input_ids[B, T]` and `labels[B, T]` of some samples of a window."""
    pairs = [_sample(case, window, sample) for sample in samples]
    return {"input_ids": torch.stack([ids for ids, _ in pairs]), "labels": torch.stack([labels for _, labels in pairs])}


def _sample(case: Case, window: int, sample: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1000 * window + sample)
    ids = torch.randint(0, VOCABULARY, (case.length,), generator=generator)
    labels = torch.randint(0, VOCABULARY, (case.length,), generator=generator)
    labels[valid_length(case, window, sample) :] = IGNORE_INDEX
    return ids, labels


def num_tokens(case: Case, labels: Tensor) -> int:
    """How many labels count in the loss."""
    return int(((labels[:, 1:] if case.shift else labels) != IGNORE_INDEX).sum())
