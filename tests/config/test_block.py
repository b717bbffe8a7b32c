"""The `ds_accum` block."""

from __future__ import annotations

import logging
import os
from typing import Any

import pytest

from ds_accum.config.block import DSAccumBlock, read_block


def test_an_empty_block_has_the_defaults_that_are_right_without_a_block() -> None:
    block, mistakes = read_block({})
    assert mistakes == []
    assert block == DSAccumBlock()
    assert (block.normalization, block.loss_reduction, block.counting.ignore_index) == ("token", "mean", -100)


@pytest.mark.parametrize(
    ("values", "path", "sentence"),
    [
        ({"normalisation": "token"}, ("normalisation",), "is no field of the ds_accum block"),
        ({"normalization": "tokens"}, ("normalization",), "must be 'token' or 'micro_batch'"),
        ({"counting": {"ignore_idx": 0}}, ("counting", "ignore_idx"), "is no field of the ds_accum block"),
        ({"counting": {"shift": "yes"}}, ("counting", "shift"), "must be true or false"),
        ({"initial_tokens": 0}, ("initial_tokens",), "must be at least 1"),
        ({"initial_tokens": 10**45}, ("initial_tokens",), "must be at most 1000000000000"),
        (
            {"counting": {"loss_mask": "mask", "shift": True}},
            ("counting",),
            "must have shift or loss_mask, not both: a mask counts as it is, so shift it where the batch is made",
        ),
        ({"timeout_s": 0}, ("timeout_s",), "must be more than 0"),
        ({"log": ""}, ("log",), "string should have at least 1 character"),
        ({"lint": {"world_size": True}}, ("lint", "world_size"), "must be a whole number"),
        ("token", (), "must be an object of settings"),
    ],
)
def test_a_mistake_is_named_with_its_place(values: Any, path: tuple[str, ...], sentence: str) -> None:
    block, mistakes = read_block(values)
    assert block is None
    assert mistakes == [(path, sentence)]


@pytest.mark.engine
def test_deepspeed_ignores_the_block() -> None:
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    from deepspeed.runtime.config import DeepSpeedConfig
    from deepspeed.utils import logger

    logger.setLevel(logging.ERROR)
    without = DeepSpeedConfig({"train_batch_size": 8})
    with_block = DeepSpeedConfig({"train_batch_size": 8, "ds_accum": {"normalization": "token"}})
    assert with_block.train_micro_batch_size_per_gpu == without.train_micro_batch_size_per_gpu == 8
