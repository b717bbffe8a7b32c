"""Gradients that change between micro-batches are reported with the first parameter's name, by whatever hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from guards.injecting import Injection, check_misuse, check_silence, jobs_of, trials
from launch import Answer

from ds_accum.engine.guards.editing import _elements

SAYS = 'the gradient of "{}" was written to after micro-batch 1 of 2 of step 1, before the next backward: '

MISUSES = (
    Injection(
        function="scale_gradients_between",
        stages=(0, 1),
        error="GradientEditedError",
        says=SAYS.format("positions"),
        let_pass=(0, 1),
    ),
    Injection(
        function="scale_gradients_between",
        stages=(0, 1),
        dtype="bf16",
        error="GradientEditedError",
        says=SAYS.format("positions"),
    ),
    Injection(
        function="replace_a_gradient_between",
        stages=(0, 1),
        error="GradientEditedError",
        says=SAYS.format("head.weight"),
        let_pass=(1,),
    ),
    Injection(
        function="drop_a_gradient_between",
        stages=(0, 1),
        error="GradientEditedError",
        says=SAYS.format("head.weight"),
        let_pass=(0,),
    ),
    Injection(
        function="zero_through_the_module_between",
        stages=(0, 1),
        error="GradientEditedError",
        says=SAYS.format("positions"),
    ),
    Injection(
        function="write_to_data_between",
        stages=(0, 1),
        error="GradientEditedError",
        says=SAYS.format("head.weight"),
        let_pass=(0,),
        block={"check": "thorough"},
    ),
    # Held back to the boundary, gradients are on the parameters of ZeRO-2 and 3, too.
    *(
        Injection(
            function=function,
            stages=(2, 3),
            error="GradientEditedError",
            says=SAYS.format(parameter),
            block={"reduction": "boundary", **block},
        )
        for function, parameter, block in (
            ("scale_gradients_between", "positions", {}),
            ("replace_a_gradient_between", "head.weight", {}),
            ("drop_a_gradient_between", "head.weight", {}),
            ("zero_through_the_module_between", "positions", {}),
            ("write_to_data_between", "head.weight", {"check": "thorough"}),
        )
    ),
)
TWINS = (
    # What is documented as not seen: `.data` has a version counter of its own.
    Injection(function="write_to_data_between", stages=(0, 1)),
    Injection(function="keep_the_replicas", stages=(0, 1), block={"check": "thorough"}),
    Injection(function="keep_the_replicas", stages=(2, 3), block={"check": "thorough", "reduction": "boundary"}),
)
NOTHING_TO_EDIT = (Injection(function="leave_no_gradient_between", stages=(2, 3)),)
JOBS = jobs_of(*MISUSES, *TWINS, *NOTHING_TO_EDIT)


@pytest.mark.parametrize(("injection", "stage", "mode"), trials(MISUSES, "raise", "warn", "count"))
def test_an_edited_gradient_is_reported(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    check_misuse(injection, stage, mode, answers)


@pytest.mark.parametrize(("injection", "stage", "mode"), trials(TWINS, "raise"))
def test_gradients_that_nobody_edits_are_silent(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    check_silence(injection, stage, mode, answers)


@pytest.mark.parametrize(("injection", "stage", "mode"), trials(NOTHING_TO_EDIT, "raise"))
def test_there_is_no_gradient_to_edit_where_it_is_moved_after_each_backward(
    injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]
) -> None:
    check_silence(injection, stage, mode, answers)
    assert all(found["value"] is True for found in injection.found(answers, stage, mode))


def test_a_thorough_check_takes_the_middle_of_each_gradient_in_one_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    gradients = [
        torch.arange(5.0),
        None,
        torch.tensor([[1.0, 2.0], [7.0, 4.0]], dtype=torch.bfloat16),
        torch.empty(0),
        torch.tensor(math.nan),
        torch.tensor([9.0], dtype=torch.float64),
    ]
    transfers: list[torch.Size] = []
    reading = {name: getattr(torch.Tensor, name) for name in ("cpu", "item", "tolist", "numpy", "__float__")}

    def noting(name: str) -> Callable[..., Any]:
        def read(tensor: torch.Tensor, *arguments: Any) -> Any:
            transfers.append(tensor.shape)
            return reading[name](tensor, *arguments)

        return read

    for name in reading:
        monkeypatch.setattr(torch.Tensor, name, noting(name))
    elements = _elements(gradients)
    monkeypatch.undo()
    assert transfers == [torch.Size([4])]
    assert elements.tolist() == [2.0, 0.0, 7.0, 0.0, 0.0, 9.0]
