"""Ranks that share sequences each count their own tokens: the step is the mean over all of them, at every ZeRO stage.

Sequence parallelism comes in through an mpu, as in Ulysses and ALST. DeepSpeed's own gradient depends on the stage
there: ZeRO-3 with reduce-scatter divides by all ranks, everything else by the data parallel ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pytest
from launch import Answer, Job, launch

try:
    INSTALLED = version("deepspeed")
except PackageNotFoundError:  # every test here is skipped
    INSTALLED = ""

_STAGES: dict[str, dict[str, Any]] = {
    "ZeRO-0": {"stage": 0},
    "ZeRO-1": {"stage": 1},
    "ZeRO-2": {"stage": 2},
    "ZeRO-3": {"stage": 3},
    "ZeRO-3 without reduce-scatter": {"stage": 3, "zero": {"reduce_scatter": False}},
}
_LOSSES = ("rank's own", "whole group's", "whole group's, and its count")
_LAYOUTS = {"2 ranks, 1 sequence": 2, "4 ranks, 2 sequences": 4}
_PRECISIONS = ("fp32", "bf16")
# Sum and number of the tokens that count in `sequences.WINDOW`, on 2 and on 4 ranks.
_SUM_AND_COUNT = {2: (28.0, 7), 4: (55.0, 15)}

Answers = Mapping[str, Answer]


@pytest.fixture(scope="module")
def answers() -> Answers:
    jobs = []

    def add(name: str, engine: str, ranks: int, settings: Mapping[str, Any], loss: str = "rank's own") -> None:
        arguments = {"engine": engine, "sequence_parallel_size": 2, "loss": loss, "settings": settings}
        jobs.append(Job(name=name, function="sequences:window", arguments=arguments, ranks=ranks))

    for stage, settings in _STAGES.items():
        for layout, ranks in _LAYOUTS.items():
            for dtype in _PRECISIONS:
                add(f"{stage}, {layout}, {dtype}", "ours", ranks, {**settings, "dtype": dtype})
            add(f"{stage}, {layout}, clipped", "ours", ranks, {**settings, "clipping": 1.0})
        for loss in _LOSSES[1:]:
            # Without NCCL, torch propagates a gathered loss back on the group of all ranks alone.
            add(f"{stage}, {loss}", "ours", 2, settings, loss)
        add(f"{stage}, stock", "stock", 2, settings, _LOSSES[1])
    return launch(jobs)


@pytest.mark.parametrize("dtype", _PRECISIONS)
@pytest.mark.parametrize("layout", _LAYOUTS)
@pytest.mark.parametrize("stage", _STAGES)
def test_a_step_is_the_mean_over_the_tokens_of_all_ranks(stage: str, layout: str, dtype: str, answers: Answers) -> None:
    answer = answers[f"{stage}, {layout}, {dtype}"]
    total, count = _SUM_AND_COUNT[_LAYOUTS[layout]]
    answer.value()
    for found in answer.values:
        assert found["moved"] == pytest.approx(total / count, rel=1e-2 if dtype == "bf16" else 1e-6)
        assert found["tokens"] == count
        assert found["loss"] == 0.0 and found["steps"] == 1


@pytest.mark.parametrize("layout", _LAYOUTS)
@pytest.mark.parametrize("stage", _STAGES)
def test_clipping_sees_the_norm_of_the_whole_gradient(stage: str, layout: str, answers: Answers) -> None:
    answer = answers[f"{stage}, {layout}, clipped"]
    total, count = _SUM_AND_COUNT[_LAYOUTS[layout]]
    answer.value()
    for found in answer.values:
        assert found["reported norm"] == pytest.approx(2 * total / count, rel=1e-6)
        assert found["moved"] == pytest.approx(0.5, rel=1e-5)


@pytest.mark.parametrize("stage", _STAGES)
def test_a_loss_that_is_the_mean_over_the_whole_sequence_gives_the_same_step(stage: str, answers: Answers) -> None:
    total, count = _SUM_AND_COUNT[2]
    answer = answers[f"{stage}, {_LOSSES[1]}"]
    answer.value()
    for found in answer.values:
        assert found["moved"] == pytest.approx(total / count, rel=1e-6)
        assert found["tokens"] == count


@pytest.mark.parametrize("stage", _STAGES)
def test_the_count_of_the_whole_sequence_is_not_a_ranks_own(stage: str, answers: Answers) -> None:
    # It would be reported once for every rank that has a part of the sequence.
    for error in answers[f"{stage}, {_LOSSES[2]}"].errors:
        assert error is not None and "CountError: num_tokens is 4, but the batch has 3 labels" in error


@pytest.mark.skipif(INSTALLED != "0.19.8", reason="read in DeepSpeed 0.19.8")
def test_stock_deepspeed_takes_another_step_on_stage_3(answers: Answers) -> None:
    moves = {stage: answers[f"{stage}, stock"].value()["moved"] for stage in _STAGES}
    assert moves["ZeRO-3"] == pytest.approx(moves["ZeRO-2"] / 2)
    assert moves["ZeRO-3 without reduce-scatter"] == pytest.approx(moves["ZeRO-2"])
    assert moves["ZeRO-0"] == moves["ZeRO-1"] == moves["ZeRO-2"]
