"""A report equals the truth: every number of it, on every rank, against float64 or against the data itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import matrix
import pytest
from cases import Case, samples_of, valid_length
from launch import Answer, launch
from optimizers import SGD
from packaging.version import Version

from ds_accum.engine.report import StepReport

FP32, HALF_PRECISION = 1e-6, 1e-2

CASES = [
    *matrix.CORE,
    *(
        replace(case, name=f"{case.name} every norm", block={"report_norm": "always"})
        for case in matrix.CORE
        if case.name.endswith(" unclipped")
    ),
]
SAME_ON_ALL_RANKS = [name for name in StepReport.__dataclass_fields__ if name != "seconds"]


@pytest.fixture(scope="module")
def answers(request: pytest.FixtureRequest) -> Mapping[str, Answer]:
    items = [item for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function)]
    cases = {item.callspec.params["case"].name: item.callspec.params["case"] for item in items}
    return launch(case.job("reporting:report_all") for case in cases.values())


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name, marks=pytest.mark.core) for case in CASES])
def test_every_number_of_a_report_is_the_true_one(case: Case, answers: Mapping[str, Answer]) -> None:
    found = answers[case.name].value()
    rounding = FP32 if case.dtype == "fp32" else HALF_PRECISION
    scales = _loss_scales(case)
    for window, report in enumerate(found["reports"]):
        applied = window != case.overflows_in
        tokens = _tokens(case, window)
        per_rank = [sum(of_rank) for of_rank in tokens]
        assert report["step"] == window + 1
        assert report["micro_batches"] == case.windows[window]
        assert report["num_tokens"] == sum(per_rank) == found["true_tokens"][window]
        assert (report["min_rank_tokens"], report["min_rank"]) == _first(min, per_rank)
        assert (report["max_rank_tokens"], report["max_rank"]) == _first(max, per_rank)
        assert report["weighting_skew"] == pytest.approx(_skew(tokens), rel=1e-12)
        assert report["loss"] == pytest.approx(found["true_losses"][window], rel=rounding)
        assert report["learning_rate"] == SGD["lr"]
        assert report["loss_scale"] == scales[window]
        assert report["applied"] == applied
        assert report["misuses"] == {}
        assert 0 < report["seconds"] < 60
        _check_norms(case, report, found["true_norms"][window], rounding)


def _check_norms(case: Case, report: Mapping[str, Any], true_norm: float, rounding: float) -> None:
    norm, coefficient, clipped = (report[name] for name in ("grad_norm", "clip_coefficient", "clipped_norm"))
    if not report["applied"]:
        assert report["skipped_because"] == "overflow"
        assert math.isinf(norm) and clipped is None
        return
    assert report["skipped_because"] is None
    if _takes_no_norm(case):
        assert (norm, coefficient, clipped) == (None, None, None)
        return
    assert norm == pytest.approx(true_norm, rel=rounding)
    if not case.clipping:
        assert coefficient is None and clipped == norm
        return
    assert coefficient == pytest.approx(min(1.0, case.clipping / (true_norm + 1e-6)), rel=2 * rounding)
    assert clipped == pytest.approx(min(true_norm, case.clipping), rel=1e-3)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_a_report_is_the_same_on_every_rank(case: Case, answers: Mapping[str, Answer]) -> None:
    first, *others = ([_alike(report) for report in value["reports"]] for value in answers[case.name].values)
    assert all(other == first for other in others)


def _alike(report: Mapping[str, Any]) -> dict[str, Any]:
    return {name: report[name] for name in SAME_ON_ALL_RANKS}


def _tokens(case: Case, window: int) -> list[list[int]]:
    """Counted tokens by rank and micro-batch."""
    return [
        [
            sum(valid_length(case, window, sample) for sample in samples_of(case, window, micro_batch, rank))
            for micro_batch in range(case.windows[window])
        ]
        for rank in range(case.ranks)
    ]


def _first(choose: Any, per_rank: list[int]) -> tuple[int, int]:
    return choose(per_rank), per_rank.index(choose(per_rank))


def _skew(tokens: list[list[int]]) -> float:
    """The largest of (1 / (n x micro-batches)) / (1 / T), over micro-batches with a token."""
    counts = [count for of_rank in tokens for count in of_rank]
    return max(sum(counts) / (count * len(counts)) for count in counts if count)


def _loss_scales(case: Case) -> list[float]:
    """What the losses of each window are scaled by: it grows after every second step, and an overflow halves it."""
    if case.dtype == "bf16" and case.stage == 0 and Version(version("deepspeed")) < Version("0.18.6"):
        return [65536.0] * len(case.windows)  # the 16-bit wrapper scaled bf16 dynamically as well
    if case.dtype != "fp16":
        return [1.0] * len(case.windows)
    return [256.0, 256.0, 256.0, 512.0, 256.0][: len(case.windows)]


def _takes_no_norm(case: Case) -> bool:
    return case.stage == 0 and case.dtype == "fp32" and not case.clipping and not case.block
