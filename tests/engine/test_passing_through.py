"""Backwards of other engines, and of nobody, pass through an engine without a trace.

Stock DeepSpeed 0.19.8 fails in the same loops on ZeRO-1 and 2 (IndexError in its epilogue), refuses them on ZeRO 0, and
on ZeRO-3 leaves the discriminator's own gradient out, or adds it to the next step's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from launch import Answer, Job, launch

STAGES = (0, 1, 2, 3)
ACCUMULATIONS = (1, 2)
_TRAINED = "TrainedByAnotherEngineError: the backward of another engine passes through this one before the first micro-"

Answers = Mapping[str, Answer]


@pytest.fixture(scope="module")
def answers() -> Answers:
    jobs = []

    def add(name: str, function: str, **arguments: Any) -> None:
        jobs.append(Job(name=name, function=f"passing:{function}", arguments=arguments))

    for stage in STAGES:
        settings = {"stage": stage}
        for accumulation in ACCUMULATIONS:
            add(f"frozen {accumulation}, ZeRO-{stage}", "frozen", settings=settings, accumulation=accumulation)
        for on_misuse in ("raise", "count") if stage else ("raise",):
            add(f"trainable {on_misuse}, ZeRO-{stage}", "trainable", settings=settings, on_misuse=on_misuse)
    add("stock generator", "frozen", settings={"stage": 2}, accumulation=1, generator="stock")
    add("warned about", "trainable", settings={"stage": 2}, on_misuse="warn")
    for bare in (False, True):
        add(f"other gradients {bare}", "other_gradients", settings={"stage": 3}, bare=bare)
    for stage in (1, 2):
        add(f"recomputed, ZeRO-{stage}", "recomputed", settings={"stage": stage})
    return launch(jobs)


@pytest.mark.parametrize("accumulation", ACCUMULATIONS)
@pytest.mark.parametrize("stage", STAGES)
def test_another_engines_backward_takes_its_gradient_unchanged_and_leaves_none(
    stage: int, accumulation: int, answers: Answers
) -> None:
    for found in answers[f"frozen {accumulation}, ZeRO-{stage}"].each():
        tokens = sum(8 - 2 * micro_batch for micro_batch in range(accumulation))
        mean = sum((micro_batch + 1.0) * (8 - 2 * micro_batch) for micro_batch in range(accumulation)) / tokens
        assert found["discriminator"] == pytest.approx([mean, mean])
        # 2 x 3.0, through weights that are 1; the second of two micro-batches comes before the first step, too.
        assert found["generator"] == pytest.approx(6.0)
        assert found["tokens"] == tokens * 2


def test_the_other_engine_may_be_stock_deepspeeds(answers: Answers) -> None:
    for found in answers["stock generator"].each():
        assert found["generator"] == pytest.approx(6.0) and found["discriminator"] == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("stage", STAGES)
def test_parameters_that_another_engines_backward_would_train_are_refused(stage: int, answers: Answers) -> None:
    for found in answers[f"trainable raise, ZeRO-{stage}"].each():
        assert found["raised"].startswith(_TRAINED) and "engine.module.requires_grad_(False)" in found["raised"]
        assert found["taken in"] == 0


@pytest.mark.parametrize("stage", STAGES[1:])
def test_whoever_has_that_counted_gets_the_other_engines_gradient_right(stage: int, answers: Answers) -> None:
    for found in answers[f"trainable count, ZeRO-{stage}"].each():
        assert found["raised"] is None and found["generator"] == pytest.approx(6.0) and found["taken in"] == 0
    for found in answers["warned about"].each():
        assert len(found["warned"]) == 1 and found["generator"] == pytest.approx(6.0)


def test_a_gradient_that_is_asked_for_beside_is_no_micro_batch(answers: Answers) -> None:
    for found in answers["other gradients False"].each():
        assert found["steps"] == pytest.approx([2.0, 4.0]) and found["tokens"] == 2


def test_a_bare_backward_after_it_is_refused_because_deepspeed_does_not_announce_it(answers: Answers) -> None:
    for found in answers["other gradients True"].each():
        assert found["raised"].startswith("loss.backward() was called once more on an output") and not found["taken in"]


@pytest.mark.parametrize("stage", [1, 2])
def test_a_model_that_is_recomputed_as_a_whole_is_not_taken_for_one_that_is_left_out(
    stage: int, answers: Answers
) -> None:
    for found in answers[f"recomputed, ZeRO-{stage}"].each():
        assert found["moved"] == pytest.approx(3.0)
