"""Limits on a comparison, for CI."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from ds_accum.compare.gates import check_gates, parse_gate
from ds_accum.compare.result import (
    CollectiveCount,
    Communication,
    Comparison,
    Memory,
    Parity,
    Speed,
    VariantResult,
)
from ds_accum.errors import UsageError
from tests.compare.runs import small_spec


def measured(name: str, *, error: float, seconds: float = 0.5) -> VariantResult:
    count = CollectiveCount(kind="all-reduce", moment="boundary", calls=2.0, bytes=3000.0)
    return VariantResult(
        name=name,
        status="done",
        parity=Parity(steps=(), largest_error=error, tolerance=1e-5, first_difference=None),
        communication=Communication(
            counted=(count, replace(count, moment="step", calls=1.0, bytes=4.0)), expected=None
        ),
        memory=Memory(peak=2**21, reserved=None, parameters=0, gradients=0, optimizer_state=0),
        speed=Speed(
            step_seconds=(9.0, seconds, 0.1),
            forward_seconds=0.1,
            backward_seconds=0.1,
            update_seconds=0.1,
            communication_share=None,
            tokens_per_second=1.0,
        ),
    )


@pytest.fixture
def comparison() -> Comparison:
    """zero-0 stock is wrong, zero-0 token is right, zero-1 stock is no number, single has nothing measured."""
    return Comparison(
        format=1,
        spec=small_spec(),
        versions={},
        machine={},
        parameters=0,
        results=(
            measured("zero-0 stock", error=0.5),
            measured("zero-0 token", error=1e-6),
            measured("zero-1 stock", error=math.nan),
            VariantResult(name="single", status="done"),
        ),
    )


@pytest.mark.parametrize(
    ("gate", "variants"),
    [
        ("parity>1e-4", ["zero-0 stock", "zero-1 stock"]),
        ("token:parity>1e-4", []),
        ("zero-0 token:parity>1e-4", []),
        ("zero-0:parity>1e-4", ["zero-0 stock"]),
        ("stock zero-0:parity > 1E-4", ["zero-0 stock"]),
        ("token:parity>1e-7", ["zero-0 token"]),
        ("zero-0 token:step_time>0.4", ["zero-0 token"]),
        ("zero-0 token:step_time>500ms", []),
        ("zero-0 token:step_time>=500ms", ["zero-0 token"]),
        ("zero-0 token:step_time<1s", ["zero-0 token"]),
        ("token:memory>2MiB", []),
        ("token:memory>2MB", ["zero-0 token"]),
        ("token:bytes>3003", ["zero-0 token"]),
        ("token:bytes>3004", []),
        ("token:calls>2", ["zero-0 token"]),
    ],
)
def test_a_limit_is_held_against_the_variants_it_names(comparison: Comparison, gate: str, variants: list[str]) -> None:
    sentences = list(check_gates([parse_gate(gate)], comparison))
    assert len(sentences) == len(variants)
    for name, sentence in zip(variants, sentences, strict=True):
        assert sentence.startswith(f"{gate}: the ") and f" of {name} is " in sentence


def test_the_sentence_has_the_number(comparison: Comparison) -> None:
    gates = [parse_gate("zero-0 stock:parity>1e-4"), parse_gate("zero-0 stock:step_time>0.1")]
    assert list(check_gates(gates, comparison)) == [
        "zero-0 stock:parity>1e-4: the largest relative error of the update against the truth of zero-0 stock is 0.5",
        "zero-0 stock:step_time>0.1: the median time of an optimizer step of zero-0 stock is 0.5 s",
    ]


def test_a_limit_on_what_was_not_measured_is_not_kept(comparison: Comparison) -> None:
    assert list(check_gates([parse_gate("single:memory>1GB")], comparison)) == [
        "single:memory>1GB: the peak memory of a rank of single was not measured"
    ]


def test_an_unknown_variant_gives_the_list(comparison: Comparison) -> None:
    with pytest.raises(UsageError, match="no variant is called zero-4") as refused:
        list(check_gates([parse_gate("zero-4:parity>1")], comparison))
    assert refused.value.remedy == "there are zero-0 stock, zero-0 token, zero-1 stock, single"


@pytest.mark.parametrize(
    ("text", "sentence", "remedy"),
    [
        ("speed>1", "knows no metric 'speed'", "there are parity, step_time, memory, bytes, calls"),
        ("parity", "says no limit", "parity, step_time, memory, bytes, calls"),
        ("parity=1", "says no limit", "metric>number"),
        ("parity>", "says no limit", "metric>number"),
        ("parity>1e", "'1e' is no number", "as in parity>1e-4"),
        ("parity>1GB", "parity has no unit 'GB'", "memory and bytes take"),
        ("memory>1ms", "memory has no unit 'ms'", "step_time takes s and ms"),
        ("step_time>1parsec", "step_time has no unit 'parsec'", "step_time takes s and ms"),
    ],
)
def test_a_text_that_says_no_limit_is_refused(text: str, sentence: str, remedy: str) -> None:
    with pytest.raises(UsageError, match=sentence) as refused:
        parse_gate(text)
    assert remedy in (refused.value.remedy or "")
