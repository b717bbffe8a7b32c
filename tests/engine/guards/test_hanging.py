"""A rank that waits for another says which one, and ends; a rank that is gone is named; long evaluations are no hang."""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch.distributed
from cases import Case
from guards.hanging_ranks import TIMEOUT_S
from launch import Answer, Job

from ds_accum.config.block import DSAccumBlock
from ds_accum.engine.guards import hanging
from ds_accum.engine.guards.hanging import EXIT_STATUS, Watchdog

STAGES = (0, 1, 2, 3)


def _job(function: str, stage: int) -> Job:
    case = Case(name=f"zero-{stage} {function}", stage=stage, dtype="fp32", micro_batch_size=1, windows=(2, 2))
    # The rank that sleeps is not waited for.
    return replace(case.job(f"guards.hanging_ranks:{function}"), moment=5.0)


JOBS = [
    *(_job("sleep_on_rank_1", stage) for stage in STAGES),
    *(_job("die_on_rank_1", stage) for stage in STAGES),
    *(_job("evaluate_for_long", stage) for stage in (0, 3)),
]


@pytest.mark.parametrize("stage", STAGES)
def test_a_rank_that_waits_for_too_long_names_the_one_behind_and_ends(
    stage: int, answers: Mapping[str, Answer]
) -> None:
    answer = answers[f"zero-{stage} sleep_on_rank_1"]
    said = answer.errors[0] or ""
    assert f"exited with {EXIT_STATUS}" in said, answer.report
    assert re.search(
        r"rank 0 has been in (forward|backward|step) for \d+ s \(step 2, micro-batch \d\), longer than", said
    )
    behind = re.search(r"the ranks are at:\n  (rank \d): step 1, micro-batch \d, outside the engine for \d+ s", said)
    assert behind is not None and behind[1] == "rank 1", said
    assert "its main thread stands here" in said and "guards/loop.py" in said
    # Its start, the time-out and a few seconds.
    assert answer.seconds < TIMEOUT_S + 25


@pytest.mark.parametrize("stage", STAGES)
def test_the_survivors_of_a_killed_rank_say_which_one_is_gone(stage: int, answers: Mapping[str, Answer]) -> None:
    answer = answers[f"zero-{stage} die_on_rank_1"]
    assert "was killed" in (answer.errors[1] or "")
    assert answer.errors[0] is not None and "RuntimeError" in answer.errors[0], answer.report
    said = answer.outputs[0]
    assert "ds-accum: rank 0 lost its peers" in said, said
    assert re.search(r"\n  rank 1: step 1, .*, silent for \d+ s: its process is gone or stopped", said), said


@pytest.mark.parametrize("stage", [0, 3])
def test_an_evaluation_longer_than_the_time_out_is_no_hang(stage: int, answers: Mapping[str, Answer]) -> None:
    answer = answers[f"zero-{stage} evaluate_for_long"]
    assert answer.value() == {"applied": [True, True]}
    assert all("ds-accum: rank" not in output for output in answer.outputs)


def _watchdog(rank: int, store: torch.distributed.HashStore, timeout_s: float = 60.0) -> Watchdog:
    return Watchdog(store, rank=rank, ranks=3, timeout_s=timeout_s, key="test")


def test_whereabouts_begin_with_those_that_are_behind() -> None:
    store = torch.distributed.HashStore()
    first, second = _watchdog(0, store), _watchdog(1, store)
    with first.inside("step", step=4, micro_batch=2), second.inside("backward", step=3, micro_batch=1):
        with first.inside("backward", step=9, micro_batch=9):
            first._write()
        second._write()
        never, behind, ahead = first.whereabouts()
    assert never == "  rank 2 never began"
    assert behind.startswith("  rank 1: step 3, micro-batch 1, backward for 0 s")
    # A call inside another is the outer one's.
    assert ahead.startswith("  rank 0: step 4, micro-batch 2, step for 0 s")


def test_a_rank_that_has_left_is_not_taken_for_dead() -> None:
    store = torch.distributed.HashStore()
    watchdog = _watchdog(0, store)
    watchdog.start()
    watchdog.stop()
    assert "  rank 0 has left" in _watchdog(1, store).whereabouts()


def test_silence_tells_a_dead_rank_from_a_slow_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hanging, "_SILENT_S", 1.5)
    store = torch.distributed.HashStore()
    _watchdog(1, store)._write()
    slow, living = _watchdog(2, store), _watchdog(0, store)
    for watchdog in (slow, living):
        watchdog.start()
    try:
        with pytest.raises(RuntimeError), living.inside("backward", step=1, micro_batch=1):
            raise torch.distributed.DistBackendError("Connection closed by peer")
    finally:
        slow.stop()
        living.stop()
    said = capsys.readouterr().err
    assert "rank 0 lost its peers (Connection closed by peer)" in said
    assert "rank 1" in said and "silent" in said and "rank 0:" not in said and "rank 2:" not in said


@pytest.mark.parametrize(
    ("module", "is_one"),
    [
        ("torch.distributed.distributed_c10d", True),
        ("deepspeed.comm.comm", True),
        ("ds_accum.engine.exchange", True),
        ("model", False),
        ("torch.nn.functional", False),
    ],
)
def test_an_error_of_gloos_is_told_from_one_of_the_models_by_who_called_it(module: str, is_one: bool) -> None:
    for words, is_told in (("Connection closed by peer", is_one), ("shapes do not match", False)):
        with pytest.raises(RuntimeError) as caught:
            exec(f"raise RuntimeError({words!r})", {"__name__": module})
        assert hanging._is_of_a_collective(caught.value) is is_told


@pytest.mark.parametrize("hours", [-5, 5])
def test_clocks_that_differ_neither_cause_nor_hide_an_accusation(monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    """Each host has a wall clock and a monotonic clock of its own; the observer's go on, whatever the others' say."""
    store = torch.distributed.HashStore()
    clock = {"wall": time.time(), "monotonic": 1000.0}
    monkeypatch.setattr(hanging.time, "time", lambda: clock["wall"])
    monkeypatch.setattr(hanging.time, "monotonic", lambda: clock["monotonic"])
    here, there = _watchdog(0, store), _watchdog(1, store)

    def write_there() -> None:
        before = dict(clock)
        clock["wall"] += 3600 * hours
        clock["monotonic"] += 3600 * (6 + hours)
        there._write()
        clock.update(before)

    for _ in range(3):
        write_there()
        here._write()
        assert not any("silent" in line for line in here.whereabouts())
        clock["wall"] += 100
        clock["monotonic"] += 100
    # It has not written since the last look, nor has this one.
    assert [re.search(r"silent for 100 s", line) is not None for line in here.whereabouts()[1:]] == [True, True]
    write_there()
    assert [line for line in here.whereabouts() if "rank 1" in line and "silent" in line] == []


def test_what_was_never_seen_before_is_not_silent() -> None:
    store = torch.distributed.HashStore()
    _watchdog(1, store)._write()
    assert not any("silent" in line for line in _watchdog(0, store).whereabouts())


@pytest.mark.parametrize("ranks", [2, 3])
def test_the_notes_of_all_ranks_are_read_at_once_where_all_have_begun(ranks: int) -> None:
    store = torch.distributed.HashStore()
    watchdogs = [Watchdog(store, rank=rank, ranks=ranks, timeout_s=60.0, key="test") for rank in range(ranks)]
    for watchdog in watchdogs[:2]:
        watchdog._write()
    read = watchdogs[0]._read()
    assert [written is not None for written in read] == [True, True, False][:ranks]


# --- how long a call may take -----------------------------------------------------------------------------------------


def test_unless_the_config_says_how_long_it_is_less_than_process_groups_wait() -> None:
    from deepspeed.constants import default_pg_timeout

    limit = hanging._limit_s(DSAccumBlock())
    assert 0.5 * default_pg_timeout.total_seconds() < limit < default_pg_timeout.total_seconds()


def test_shorter_process_groups_shorten_it_but_not_what_the_config_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepspeed.constants.default_pg_timeout", datetime.timedelta(minutes=5))
    assert hanging._limit_s(DSAccumBlock()) == pytest.approx(270.0)
    assert hanging._limit_s(DSAccumBlock(timeout_s=1800.0)) == 1800.0


def test_longer_process_groups_do_not_lengthen_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepspeed.constants.default_pg_timeout", datetime.timedelta(days=1))
    assert hanging._limit_s(DSAccumBlock()) == DSAccumBlock().timeout_s == 1800.0


def test_an_error_of_another_kind_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    watchdog = _watchdog(0, torch.distributed.HashStore())
    with pytest.raises(RuntimeError), watchdog.inside("forward", step=1, micro_batch=1):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    assert capsys.readouterr().err == ""
    assert watchdog.progress.call is None
