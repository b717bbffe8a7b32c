"""`loss.backward()` is weighed where it is of the model's loss, and refused where it is of something else."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from launch import Answer, Job, launch

STAGES = (1, 2, 3)
_RIGHT = {"the loss": 4.0, "twice the loss": 8.0, "twice a loss that is dropped": 8.0}
_WRONG = ("another output", "what the loss is made of")
_SAYS = "CountError: loss.backward() was called on something else than the loss in the model's output"

Answers = Mapping[str, Answer]


@pytest.fixture(scope="module")
def answers() -> Answers:
    jobs = [
        Job(
            name=f"{how}, ZeRO-{stage}",
            function="bare:backward_of",
            arguments={"settings": {"stage": stage}, "how": how},
        )
        for stage in STAGES
        for how in (*_RIGHT, *_WRONG, "twice")
    ]
    jobs += [
        Job(name=f"dropped, ZeRO-{stage}", function="bare:dropped_output", arguments={"settings": {"stage": stage}})
        for stage in (0, *STAGES)
    ]
    return launch(jobs)


@pytest.mark.parametrize("how", _RIGHT)
@pytest.mark.parametrize("stage", STAGES)
def test_the_loss_and_what_is_made_of_it_are_weighed_by_tokens(stage: int, how: str, answers: Answers) -> None:
    for found in answers[f"{how}, ZeRO-{stage}"].each():
        assert (found["refused"], found["step"]) == ("nothing", "nothing")
        assert found["moved"] == pytest.approx(_RIGHT[how]) and found["tokens"] == 4


@pytest.mark.parametrize("stage", STAGES)
def test_a_backward_that_passes_by_the_loss_is_refused_before_anything_is_accumulated(
    stage: int, answers: Answers
) -> None:
    for found in answers[f"another output, ZeRO-{stage}"].each():
        assert found["refused"].startswith(_SAYS) and "engine.backward(loss, num_tokens=n)" in found["refused"]
        assert found["taken in by then"] == 0
        # The engine can still do it.
        assert (found["moved"], found["tokens"]) == (pytest.approx(4.0), 4)


@pytest.mark.parametrize("how", ["another output", "twice"])
@pytest.mark.parametrize("stage", STAGES)
def test_a_second_bare_backward_of_an_output_is_refused_because_deepspeed_announces_none(
    stage: int, how: str, answers: Answers
) -> None:
    for found in answers[f"{how}, ZeRO-{stage}"].each():
        assert found["again"].startswith("CountError: loss.backward() was called once more on an output")
        assert (found["moved"], found["tokens"]) == (pytest.approx(4.0), 4)


@pytest.mark.parametrize("stage", STAGES)
def test_a_backward_from_right_below_the_loss_is_told_at_the_step(stage: int, answers: Answers) -> None:
    for found in answers[f"what the loss is made of, ZeRO-{stage}"].each():
        # ZeRO-3 puts functions of its own between a model and its outputs: there it is told at once.
        assert found["refused" if stage == 3 else "step"].startswith(_SAYS)
        assert found["moved"] == 0.0


@pytest.mark.parametrize("stage", [0, *STAGES])
def test_the_graph_of_an_output_that_is_dropped_is_freed(stage: int, answers: Answers) -> None:
    for found in answers[f"dropped, ZeRO-{stage}"].each():
        assert found["ours"] == [True, False]
