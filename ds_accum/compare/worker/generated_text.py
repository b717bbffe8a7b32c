"""Sequences of very uneven lengths, made from a seed: sample i is the same whoever asks for it.

Four samples that follow each other are all long or all short, as they are where data is sorted by length, and the two
kinds follow different rules. A mean over micro-batches then weighs the short ones far too much, visibly.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ds_accum.compare.worker.transformer import IGNORE_INDEX

__all__ = ["GeneratedText"]

RUN = 4
"""Samples in a row of one kind."""
SURPRISE = 0.3
"""How often a token is not the one that the rule says: what no model can learn."""


class GeneratedText:
    """`text[i]` is {"input_ids": [T], "labels": [T]}; labels are those of the next position.

    With `shifted=False` the labels are the input itself, as Hugging Face's causal models take them. Past the end of a
    sequence, inputs are 0 and labels -100.
    """

    def __init__(self, *, vocabulary: int, sequence_length: int, seed: int, shifted: bool = True) -> None:
        self._vocabulary, self._length, self._seed, self._shifted = vocabulary, sequence_length, seed, shifted
        generator = torch.Generator().manual_seed(seed)
        # One rule for each kind: which token follows which.
        self._follows = [torch.randperm(vocabulary, generator=generator).tolist() for _ in range(2)]

    def __getitem__(self, index: int) -> Mapping[str, Tensor]:
        kind = int(self._generator(1, index // RUN).integers(2))
        random = self._generator(2, index)
        length = self._length_of(kind, random)
        tokens = [random.integers(self._vocabulary)]
        while len(tokens) <= length:
            surprising = random.integers(1000) < 1000 * SURPRISE
            tokens.append(random.integers(self._vocabulary) if surprising else self._follows[kind][tokens[-1]])
        input_ids = torch.zeros(self._length, dtype=torch.long)
        labels = torch.full((self._length,), IGNORE_INDEX)
        input_ids[:length] = torch.tensor(tokens[:-1])
        labels[:length] = torch.tensor(tokens[1:] if self._shifted else tokens[:-1])
        return {"input_ids": input_ids, "labels": labels}

    def _length_of(self, kind: int, random: _Integers) -> int:
        """Tokens of a sample, at least 2: up to an eighth of the sequence, or more than three quarters of it."""
        most, least = (self._length // 8, 2) if kind == 0 else (self._length, 3 * self._length // 4)
        return max(2, least + random.integers(max(1, most - least + 1)))

    def _generator(self, purpose: int, index: int) -> _Integers:
        return _Integers((self._seed * 3 + purpose) * 1_000_003 + index)


class _Integers:
    """Random integers below a limit, from a seed."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def integers(self, limit: int) -> int:
        return int(torch.randint(0, limit, (), generator=self._generator))
