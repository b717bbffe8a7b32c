"""A step of the engine is the step on the mean over all counted tokens of the global batch: ZeRO 0-3 beside float64.

    error of an update = |parameters - truth| / |truth - initial parameters|, over all fp32 master parameters

All runs of one call share one launch; each test reads the answer to its own case. `matrix.py` lists the cases.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import matrix
import pytest
import worst
from cases import Case
from launch import Answer, launch
from limits import HALF_PRECISION, limit_of

FP32_NORM = 1e-6
LOSS = 1e-6
OFF = 0.1
"""An error that training notices."""

Answers = Mapping[str, Answer]


def _parameters(cases: list[Case], *, core: bool = False) -> Any:
    marks = [pytest.mark.core] if core else []
    return [pytest.param(case, id=case.name, marks=marks) for case in cases]


@pytest.fixture(scope="module")
def answers(request: pytest.FixtureRequest) -> Answers:
    """The answers to the cases of all selected tests, and to what they are measured by."""
    cases: dict[str, Case] = {}
    for item in request.session.items:
        if item.path != request.path:
            continue
        parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        if "case" in parameters:
            cases[parameters["case"].name] = parameters["case"]
            if (yardstick := matrix.yardstick_of(parameters["case"])) is not None:
                cases[yardstick.name] = yardstick
        if "stage" in parameters:
            cases |= {case.name: case for case in matrix.CUTS if case.stage == parameters["stage"]}
    return launch(case.job() for case in cases.values())


@pytest.mark.parametrize(
    "case", [*_parameters(matrix.CORE, core=True), *_parameters(matrix.VARIANTS), *_parameters(matrix.CUTS)]
)
def test_a_step_is_the_step_on_the_mean_over_all_counted_tokens(case: Case, answers: Answers) -> None:
    found = answers[case.name].value()
    applied = [step["applied"] for step in found["steps"]]
    assert applied == [window != case.overflows_in for window in range(len(case.windows))]
    assert found["global_steps"] == len(case.windows)
    assert found["skipped_steps"] == applied.count(False)
    if case.overflows_in is not None:
        because = "overflow" if case.dtype == "fp16" else "non-finite gradient"
        assert found["steps"][case.overflows_in]["skipped_because"] == because

    limit = limit_of(case, answers)
    errors = found["error"]["token"]
    for error in errors:
        worst.note(_group(case), "update", error, case.name)
    assert max(errors) <= limit, f"the updates are off by {errors}"
    # Replicas that have parted would have other parameters on another rank.
    assert {value["sum_of_parameters"] for value in answers[case.name].values} == {found["sum_of_parameters"]}


@pytest.mark.parametrize(
    "case", [*_parameters(matrix.CORE, core=True), *_parameters(matrix.VARIANTS), *_parameters(matrix.CUTS)]
)
def test_a_report_says_what_the_step_was(case: Case, answers: Answers) -> None:
    found = answers[case.name].value()
    steps = found["steps"]
    assert [step["num_tokens"] for step in steps] == found["true_tokens"]
    assert [step["micro_batches"] for step in steps] == list(case.windows)
    limit = limit_of(case, answers)
    exact = case.dtype == "fp32" and case.optimizer != "muon"
    rounding = FP32_NORM if exact else limit
    for window, step in enumerate(steps):
        true_loss, true_norm = found["true_losses"][window], found["true_norms"][window]
        # The losses that the loop saw have the rounding of the model in them already.
        assert step["loss"] == pytest.approx(step["seen_loss"], rel=LOSS)
        assert step["loss"] == pytest.approx(true_loss, rel=LOSS if exact else limit)
        if not step["applied"]:
            assert step["grad_norm"] is None or not math.isfinite(step["grad_norm"])
            continue
        if case.optimizer == "muon":
            continue  # what DeepSpeed calls the norm is that of Muon's update
        if step["grad_norm"] is None:
            assert _takes_no_norm(case), "there is no norm"
            continue
        norm_error = abs(step["grad_norm"] / true_norm - 1)
        worst.note(_group(case), "norm", norm_error, case.name)
        # The norm of a gradient is off by less than the gradient is.
        assert norm_error <= rounding, f"the norm is {step['grad_norm']}, not {true_norm}"
        if case.clipping:
            coefficient = min(1.0, case.clipping / (true_norm + 1e-6))
            assert step["clip_coefficient"] == pytest.approx(coefficient, rel=2 * rounding)


@pytest.mark.parametrize("stage", matrix.STAGES)
def test_the_same_samples_make_the_same_step_however_they_are_cut(stage: int, answers: Answers) -> None:
    found = [answers[case.name].value() for case in matrix.CUTS if case.stage == stage]
    assert len(found) == 4
    for window in range(len(found[0]["steps"])):
        for measure in ("loss", "grad_norm", "num_tokens"):
            said = [one["steps"][window][measure] for one in found]
            assert said == [None] * 4 or said == pytest.approx([said[0]] * 4, rel=1e-6), measure
    sums = [one["sum_of_parameters"] for one in found]
    assert sums == pytest.approx([sums[0]] * 4, abs=1e-3)


@pytest.mark.parametrize("case", [case for case in matrix.CORE if case.dtype == "fp16"], ids=lambda case: case.name)
@pytest.mark.core
def test_the_loss_scale_grows_and_shrinks_inside_the_run(case: Case, answers: Answers) -> None:
    scales = [step["loss_scale"] for step in answers[case.name].value()["steps"]]
    assert scales == [256, 256, 512, 256, 256]


@pytest.mark.parametrize("case", _parameters(matrix.STOCK, core=True))
def test_the_measure_can_fail_as_stock_deepspeed_on_uneven_counts_does(case: Case, answers: Answers) -> None:
    found = answers[case.name].value()
    assert min(found["error"]["token"]) > OFF
    # It does what it means to do: a mean of means.
    assert max(found["error"]["micro_batch"]) <= limit_of(case, answers)


@pytest.mark.parametrize("case", _parameters(matrix.YARDSTICKS))
def test_stock_deepspeed_is_right_where_all_counts_are_equal(case: Case, answers: Answers) -> None:
    found = answers[case.name].value()
    errors = found["error"]["token"]
    for error in errors:
        worst.note(f"stock on equal counts {_group(case)}", "update", error, case.name)
    assert max(errors) <= HALF_PRECISION


@pytest.mark.parametrize("case", _parameters(matrix.REFUSED))
def test_the_engine_refuses_sums_that_nothing_can_be_folded_into(case: Case, answers: Answers) -> None:
    answer = answers[case.name]
    assert answer.failed
    assert all("gradient_allreduce_op" in (error or "") for error in answer.errors), answer.report


def _group(case: Case) -> str:
    if case.optimizer == "muon":
        return "muon"
    return f"{case.dtype} {'clipped' if case.clipping == matrix.ACTIVE else 'unclipped'}"


def _takes_no_norm(case: Case) -> bool:
    """Whether DeepSpeed takes no norm here: a plain optimizer without clipping. `report_norm` asks for one all the same."""
    return case.stage == 0 and case.dtype == "fp32" and not case.clipping and case.block.get("report_norm") != "always"
