"""A workload of the user's own: a transformer of one block with 17,376 parameters in 17 tensors, on uneven text."""

from __future__ import annotations

import torch

from ds_accum.compare.worker.generated_text import GeneratedText
from ds_accum.compare.worker.transformer import CausalTransformer


def build():
    model = CausalTransformer(layers=1, width=32, heads=4, vocabulary=64, sequence_length=16, attention_bias=True)
    dataset = GeneratedText(vocabulary=64, sequence_length=16, seed=3)
    return model, dataset, loss, num_tokens


def loss(model, batch):
    return model(batch["input_ids"], batch["labels"])


def num_tokens(batch):
    return int((batch["labels"] != -100).sum())


def build_something_else():
    return torch.nn.Linear(2, 2)
