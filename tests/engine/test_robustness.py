"""A run survives what happens to runs: ranks that die, storms of overflows, empty windows, uneven ranks, and its own length.

A rank is killed at a random one of the calls of Python and C functions that its training makes, which were counted in
the uninterrupted run. DS_ACCUM_EVERY_KILL=1 kills at ten of them in each stage, and not only at two.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any

import matrix
import pytest
import worst
from cases import Case, Dtype
from launch import Answer, Job, launch
from limits import TIMES_STOCK, limit_of

RANKS = 3
TIMEOUT_S = 15
KILLS = 10 if os.environ.get("DS_ACCUM_EVERY_KILL") == "1" else 2
STORM = 10
DTYPES: tuple[Dtype, ...] = ("fp32", "bf16", "fp16")

Answers = Mapping[str, Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """Rank `victim` is killed at the share `at` of its calls."""

    stage: int
    number: int
    victim: int
    at: float

    @property
    def checkpoints(self) -> str:
        return f"zero-{self.stage}-kill-{self.number}"


def kills(stage: int) -> Iterator[Kill]:
    """The first kills rank 0, which serves the store, the second another."""
    random = Random(stage)
    for number in range(KILLS):
        victim = (0, RANKS - 1)[number] if number < 2 else random.randrange(RANKS)
        yield Kill(stage=stage, number=number, victim=victim, at=random.random())


EVERY_KILL = [kill for stage in matrix.STAGES for kill in kills(stage)]


def killed_case(stage: int) -> Case:
    return Case(
        name=f"zero-{stage}",
        stage=stage,
        dtype="fp32",
        ranks=RANKS,
        windows=(2,) * 8,
        optimizer="adamw",
        block={"timeout_s": TIMEOUT_S},
    )


def job_of(name: str, function: str, case: Case, arguments: Mapping[str, Any], **more: Any) -> Job:
    settings: dict[str, Any] = {"ranks": case.ranks, "timeout": 120.0, "moment": 2.0 * TIMEOUT_S, **more}
    return Job(name=name, function=f"robust:{function}", arguments={"case": asdict(case), **arguments}, **settings)


def stop_jobs() -> Iterator[Job]:
    """An uninterrupted run of each stage; then each kill, and the run that is resumed after it."""
    for stage in matrix.STAGES:
        case = killed_case(stage)
        whole = f"zero-{stage} whole"
        yield job_of(whole, "train_to_the_end", case, {"checkpoints": whole})
        for kill in kills(stage):
            name = kill.checkpoints
            arguments = {"checkpoints": name, "victim": kill.victim, "at": kill.at}
            yield job_of(name, "train_until_a_rank_dies", case, arguments, after=whole, store="rank 0")
            yield job_of(f"{name} resumed", "train_to_the_end", case, {"checkpoints": name}, after=name)
    for stage in (1, 2, 3):
        name = f"zero-{stage} dies while it saves"
        case = replace(killed_case(stage), windows=(1, 1))
        arguments = {"checkpoints": name, "victim": 1, "function": "_save_zero_checkpoint"}
        yield job_of(name, "die_in", case, arguments, store="rank 0")
    for victim in (0, 1):
        case = replace(killed_case(2), block={"timeout_s": 8})
        arguments = {"victim": victim}
        yield job_of(f"waits for rank {victim}", "wait_for_a_rank_that_died", case, arguments, store="rank 0")
    for stage in (1, 2, 3):
        case = Case(name="", stage=stage, dtype="fp32", counts="labels", windows=(1,), block={"timeout_s": 3})
        yield job_of(f"zero-{stage} waits in a bare backward", "wait_in_a_bare_backward", case, {})


@pytest.fixture(scope="module")
def stopped() -> Answers:
    # Survivors spend their time waiting until a silence is long enough.
    return launch(stop_jobs(), ranks_at_once=9)


def names_alone(rank: int, said: str) -> bool:
    """Whether the survivors' words blame this rank and no other."""
    blamed = re.findall(r"^  rank (\d+)(?:: .*silent for| does not answer)", said, re.MULTILINE)
    return {int(number) for number in blamed} == {rank}


@pytest.mark.parametrize("kill", EVERY_KILL, ids=lambda kill: kill.checkpoints)
def test_when_a_rank_is_killed_the_others_stop_in_time_and_name_it(kill: Kill, stopped: Answers) -> None:
    answer = stopped[kill.checkpoints]
    assert "was killed" in (answer.errors[kill.victim] or "")
    for rank in {*range(RANKS)} - {kill.victim}:
        said = answer.errors[rank] or answer.values[rank]["said"]
        assert "ds-accum: rank" in said, said
        assert names_alone(kill.victim, said), said
        worst.note("killed ranks", "seconds until the others stop", answer.ends[rank] - answer.ends[kill.victim], "")
    assert max(answer.ends) - answer.ends[kill.victim] < TIMEOUT_S + 5


@pytest.mark.parametrize("kill", EVERY_KILL, ids=lambda kill: kill.checkpoints)
def test_a_run_resumed_after_a_kill_ends_where_the_uninterrupted_one_does(kill: Kill, stopped: Answers) -> None:
    whole, resumed = stopped[f"zero-{kill.stage} whole"], stopped[f"{kill.checkpoints} resumed"]
    assert resumed.value()["steps"] == 8
    assert {value["parameters"] for value in resumed.values} == {whole.value()["parameters"]}


def test_some_runs_are_resumed_in_the_middle(stopped: Answers) -> None:
    firsts = {stopped[f"{kill.checkpoints} resumed"].value()["first_step"] for kill in EVERY_KILL}
    assert firsts & {2, 4, 6}


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_rank_that_dies_while_it_saves_leaves_the_checkpoint_before_as_the_latest(
    stage: int, stopped: Answers
) -> None:
    answer = stopped[f"zero-{stage} dies while it saves"]
    survivors = [answer.values[rank] for rank in (0, 2)]
    assert [survivor["latest"] for survivor in survivors] == ["global_step1"] * 2
    assert all(names_alone(1, survivor["said"]) for survivor in survivors)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_never_hears_of_a_death_ends_itself_and_names_the_dead(victim: int, stopped: Answers) -> None:
    answer = stopped[f"waits for rank {victim}"]
    for rank in {*range(RANKS)} - {victim}:
        said = answer.errors[rank] or ""
        assert said.startswith("exited with 85") and "longer than ds_accum.timeout_s = 8" in said
        assert re.search(rf"^  rank {victim}(: .*silent for| does not answer)", said, re.MULTILINE), said
    assert max(answer.ends) - answer.ends[victim] < 8 + 5


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_rank_that_waits_in_a_bare_backward_ends_itself_and_says_where_the_others_are(
    stage: int, stopped: Answers
) -> None:
    said = stopped[f"zero-{stage} waits in a bare backward"].errors[0] or ""
    assert said.startswith("exited with 85") and "rank 0 has been in backward for" in said
    assert "  rank 1: step 1, micro-batch 1, outside the engine" in said


# ----------------------------------------------------------------------------------- windows that must change nothing


def interrupted_case(what: str, stage: int, dtype: Dtype) -> Case:
    fp16 = {"fp16": {"initial_scale_power": 16}} if what == "storm" else {}
    one_sided: dict[str, Any] = {"data": "one-sided", "micro_batch_size": 4, "windows": (2, 2, 2)}
    more = one_sided if what == "one-sided" else {"windows": (4, 4, 4)}
    return Case(name=f"{what} zero-{stage} {dtype}", stage=stage, dtype=dtype, config=fp16, **more)


STORMS = [interrupted_case("storm", stage, "fp16") for stage in matrix.STAGES]
ALTERNATING = [interrupted_case("alternating", stage, dtype) for stage in matrix.STAGES for dtype in DTYPES]
ONE_SIDED = [interrupted_case("one-sided", stage, dtype) for stage in matrix.STAGES for dtype in DTYPES]


def stock_on_long_samples(case: Case) -> Case:
    """Stock DeepSpeed where all ranks have as many tokens as one has in the case: how far rounding takes such a sum."""
    scale = matrix.STATIC_SCALE if case.dtype == "fp16" else {}
    name = f"stock on long samples {case.dtype}"
    return replace(case, name=name, engine="stock", data="long", stage=1, config=scale)


@pytest.fixture(scope="module")
def trained() -> Answers:
    cases = [*STORMS, *ALTERNATING, *ONE_SIDED]
    yardsticks = {one.name: one for case in [*STORMS, *ALTERNATING] if (one := matrix.yardstick_of(case))}
    yardsticks |= {one.name: one for one in map(stock_on_long_samples, ONE_SIDED)}
    between: dict[str, dict[int, tuple[str, int]]] = {
        "storm": {1: ("overflow", STORM)},
        "alternating": {0: ("empty", 1), 1: ("empty", 1), 2: ("empty", 1)},
        "one-sided": {},
    }
    jobs = [yardstick.job() for yardstick in yardsticks.values()]
    for case in cases:
        what = case.name.split()[0]
        arguments = {"between": between[what], "beside_stock": what == "storm"}
        jobs.append(job_of(case.name, "train_with_others_between", case, arguments))
    return launch(jobs)


@pytest.mark.parametrize("case", STORMS, ids=lambda case: case.name)
def test_a_storm_of_overflows_halves_the_scale_each_time_and_changes_nothing_else(case: Case, trained: Answers) -> None:
    found = trained[case.name].value()
    storm = found["others"]
    assert [other["changed"] for other in storm] == [0] * STORM
    assert {other["skipped_because"] for other in storm} == {"overflow"}
    assert [other["loss_scale"] for other in storm] == [2.0**power for power in range(15, 15 - STORM, -1)]
    assert [other["loss_scale"] for other in storm] == found["stock_scales"]
    assert (found["applied"], found["skipped"]) == (3, STORM)


@pytest.mark.parametrize("case", ALTERNATING, ids=lambda case: case.name)
def test_every_other_window_may_be_empty(case: Case, trained: Answers) -> None:
    found = trained[case.name].value()
    assert [other["changed"] for other in found["others"]] == [0] * 3
    assert {other["skipped_because"] for other in found["others"]} == {"no counted token"}
    assert (found["applied"], found["skipped"]) == (3, 3)


@pytest.mark.parametrize("case", ONE_SIDED, ids=lambda case: case.name)
def test_a_rank_may_have_a_thousand_times_the_tokens_of_another(case: Case, trained: Answers) -> None:
    assert trained[case.name].value()["last_step"] == {
        "min_rank_tokens": 2,
        "max_rank_tokens": 2048,
        "max_rank": 1,
    }


@pytest.mark.parametrize("case", [*STORMS, *ALTERNATING, *ONE_SIDED], ids=lambda case: case.name)
def test_the_steps_that_are_applied_are_exact(case: Case, trained: Answers) -> None:
    errors = trained[case.name].value()["error"]
    worst.note(f"{case.name.split()[0]} {case.dtype}", "update", max(errors), case.name)
    if case in ONE_SIDED:
        stock = trained[stock_on_long_samples(case).name].value()["error"]["token"]
        worst.note(f"stock on long samples {case.dtype}", "update", max(stock), case.name)
        limit = TIMES_STOCK * max(stock)
    else:
        limit = limit_of(case, trained)
    assert max(errors) <= limit, f"the updates are off by {errors}"


# ------------------------------------------------------------------------------------------------------------ for long


MEBIBYTE = 2**20

LONG: dict[str, dict[str, int]] = {
    "one rank": {"ranks": 1, "stage": 2, "micro_batches": 1, "warm_up": 2_000, "steps": 10_000, "leak": 0},
    "two ranks zero-0": {"ranks": 2, "stage": 0, "micro_batches": 2, "warm_up": 500, "steps": 1_000, "leak": 0},
    "two ranks zero-3": {"ranks": 2, "stage": 3, "micro_batches": 2, "warm_up": 500, "steps": 1_000, "leak": 0},
}
LEAKING = {"ranks": 1, "stage": 0, "micro_batches": 1, "warm_up": 200, "steps": 1_200, "leak": 4_000}


@pytest.fixture(scope="module")
def long_runs() -> Answers:
    runs = {**LONG, "leaking": LEAKING}
    return launch(
        Job(name=name, function="robust:take_many_steps", arguments=run, ranks=run["ranks"], timeout=400)
        for name, run in runs.items()
    )


@pytest.mark.parametrize("name", LONG)
def test_a_long_run_holds_no_more_at_its_end(name: str, long_runs: Answers) -> None:
    answer = long_runs[name]
    assert not answer.failed, answer.report
    for held in answer.values:
        more = {what: last - first for what, (first, last) in held.items()}
        worst.note("long runs", f"MiB more, {name}", more["memory_bytes"] / MEBIBYTE, f"{LONG[name]['steps']} steps")
        assert more["open_files"] == more["threads"] == 0
        assert more["objects"] <= 10
        assert more["memory_bytes"] <= 2 * MEBIBYTE


def test_a_run_that_keeps_a_page_of_every_step_would_be_seen(long_runs: Answers) -> None:
    first, last = long_runs["leaking"].value()["memory_bytes"]
    assert last - first > 2 * MEBIBYTE
