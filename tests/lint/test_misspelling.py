"""Which ignored keys are taken for a misspelt one, and which are left alone."""

from __future__ import annotations

import pytest

from ds_accum.config.schema import newest_version, schema_for
from ds_accum.lint.misspelling import closest_key

ROOT = tuple(schema_for(newest_version()).block("").keys)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("zero_optimisation", "zero_optimization"),
        ("zero-optimization", "zero_optimization"),
        ("Gradient_Accumulation_Steps", "gradient_accumulation_steps"),
        ("gradient_accumulation_step", "gradient_accumulation_steps"),
        ("gradient_accumulation", "gradient_accumulation_steps"),
        ("gradient_acc_steps", "gradient_accumulation_steps"),
        ("train_micro_batch_size", "train_micro_batch_size_per_gpu"),
        ("lr_scheduler", "scheduler"),
        ("steps_per_print ", "steps_per_print"),
    ],
)
def test_a_misspelt_key_is_told_from_what_it_was_meant_to_be(word: str, meant: str) -> None:
    assert closest_key(word, ROOT) == meant


@pytest.mark.parametrize(
    "word",
    ["model_parallel_size", "batch_size", "comments", "optimizer_type", "checkpoint_factor", "log", "", "train" * 20],
)
def test_a_key_that_only_looks_alike_is_no_misspelling(word: str) -> None:
    assert closest_key(word, ROOT) is None
