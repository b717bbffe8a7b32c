"""Every refusal of DeepSpeed's block models has exactly one rule that gives it its sentence."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from ds_accum.config.document import read_text
from ds_accum.config.embedded import EmbeddedConfig
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.schema_errors import Owner, schema_errors


def context_of(values: dict[str, Any]) -> LintContext:
    return LintContext.of(read_text("{}"), EmbeddedConfig(values=values), Launch(world_size=1))


@pytest.mark.parametrize(
    ("values", "owner", "path"),
    [
        ({"zero_optimization": {"stag": 1}}, "unknown-key", ("zero_optimization", "stag")),
        ({"zero_optimization": {"reduce_bucket_size": 0}}, "out-of-range", ("zero_optimization", "reduce_bucket_size")),
        ({"zero_optimization": {"stage": 5}}, "invalid-choice", ("zero_optimization", "stage")),
        ({"zero_optimization": {"overlap_comm": "x"}}, "wrong-type", ("zero_optimization", "overlap_comm")),
        ({"zero_optimization": {"offload_param": 1}}, "block-not-an-object", ("zero_optimization", "offload_param")),
        ({"fp16": {"loss_scale": "dynamic"}}, "loss-scale", ("fp16", "loss_scale")),
        ({"bfloat16": {"enabled": "x"}}, "wrong-type", ("bfloat16", "enabled")),
        ({"timers": {"throughput": {"enable": True}}}, "unknown-key", ("timers", "throughput", "enable")),
        ({"compile": {"passes": ["z9"]}}, "invalid-choice", ("compile", "passes", 0)),
        (
            {"zero_optimization": {"zenflow": {"select_strategy": "never"}}},
            "invalid-choice",
            ("zero_optimization", "zenflow"),
        ),
    ],
)
def test_a_refusal_has_one_owner_and_its_whole_path(
    values: dict[str, Any], owner: Owner, path: tuple[str | int, ...]
) -> None:
    context = context_of(values)
    found = [(name, error.path) for name in get_args(Owner) for error in schema_errors(context, name)]
    assert found == [(owner, path)]


def test_the_entry_of_the_key_comes_with_the_error() -> None:
    (error,) = schema_errors(context_of({"zero_optimization": {"offload_param": {"device": "gpu"}}}), "invalid-choice")
    assert error.block.name == "zero_optimization.offload_param"
    assert error.key is not None and error.key.choices == ("none", "cpu", "nvme")
    assert error.value == "gpu"
