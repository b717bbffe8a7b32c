"""Workloads whose loss goes wrong on one rank, or takes long."""

from __future__ import annotations

import os
import time

import torch

_calls = 0


def _build(loss):
    dataset = [{"x": torch.full((4,), float(i % 3) + 1)} for i in range(16)]
    return torch.nn.Linear(4, 1), dataset, loss, lambda batch: len(batch["x"])


def fails_on_one_rank():
    def loss(model, batch):
        global _calls
        _calls += 1
        if os.environ["RANK"] == "1" and _calls > 4:
            raise ValueError("only rank 1 has had enough")
        return model(batch["x"]).mean()

    return _build(loss)


def fails_everywhere():
    def loss(model, batch):
        raise ValueError("no rank likes this\nand here are details")

    return _build(loss)


def takes_long():
    def loss(model, batch):
        time.sleep(0.2)
        return model(batch["x"]).mean()

    return _build(loss)
