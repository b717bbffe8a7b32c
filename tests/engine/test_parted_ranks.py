"""Ranks that have parted: one flushes or declares while another is at the first forward of a window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from launch import Answer, Job, launch

from ds_accum.engine.guards.hanging import EXIT_STATUS

DTYPES = ("fp32", "fp16")
STAGES = (0, 1)
WAYS = (False, True)
"""Whether the exchange is reduced, as above 1,024 ranks."""

_UNEVEN = "UnevenMicroBatchesError: ranks have different numbers of micro-batches in step {}"

Answers = Mapping[str, Answer]


@pytest.fixture(scope="module")
def answers() -> Answers:
    jobs = [Job(name="too late", function="parted:declare_too_late", timeout=40, moment=15)]

    def add(name: str, function: str, **arguments: Any) -> None:
        jobs.append(Job(name=name, function=f"parted:{function}", arguments=arguments, timeout=40))

    for dtype in DTYPES:
        for stage in STAGES:
            for reduced in WAYS:
                where = {"dtype": dtype, "stage": stage, "reduced": reduced}
                at = f"{dtype} ZeRO-{stage} {reduced}"
                for warm in (False, True):
                    add(f"uneven {warm} {at}", "flush_on_one_with_more", warm=warm, **where)
                add(f"nothing {at}", "flush_after_a_forward", **where)
                add(f"declared {at}", "declare_after_a_forward", **where)
    return launch(jobs)


_EVERYWHERE = [(dtype, stage, reduced) for dtype in DTYPES for stage in STAGES for reduced in WAYS]


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(("dtype", "stage", "reduced"), _EVERYWHERE)
def test_a_flush_where_one_rank_has_opened_a_window_says_so_on_both(
    dtype: str, stage: int, reduced: bool, warm: bool, answers: Answers
) -> None:
    for found in answers[f"uneven {warm} {dtype} ZeRO-{stage} {reduced}"].each():
        assert found["flush"].startswith(_UNEVEN.format(2 if warm else 1))
        if reduced:
            assert found["again"].startswith(_UNEVEN.format(2 if warm else 1))
        else:
            # Caught up: the mean of 2 and 4, after a step of 1 where there was one.
            assert found["again"] == "returned True" and found["moved"] == pytest.approx(3.0 + warm)


@pytest.mark.parametrize(("dtype", "stage", "reduced"), _EVERYWHERE)
def test_a_flush_of_nothing_after_a_forward_on_one_rank_leaves_the_next_window_whole(
    dtype: str, stage: int, reduced: bool, answers: Answers
) -> None:
    for rank, found in enumerate(answers[f"nothing {dtype} ZeRO-{stage} {reduced}"].each()):
        assert found["flush"] == "returned False", rank
        assert found["moved"] == pytest.approx(3.0) and found["tokens"] == 8


@pytest.mark.parametrize(("dtype", "stage", "reduced"), _EVERYWHERE)
def test_a_declaration_after_a_forward_on_one_rank_is_heard_by_both(
    dtype: str, stage: int, reduced: bool, answers: Answers
) -> None:
    for found in answers[f"declared {dtype} ZeRO-{stage} {reduced}"].each():
        assert found["moved"] == pytest.approx(3.0) and found["tokens"] == 12


def test_a_rank_that_waits_in_begin_window_says_so(answers: Answers) -> None:
    answer = answers["too late"]
    assert answer.failed and f"{EXIT_STATUS}" in answer.report
    assert "rank 0 has been in begin_window for" in answer.report + "".join(answer.outputs)
