"""A comparison runs all launches, keeps what was measured, and leaves nothing running, however its ranks behave."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from ds_accum.compare.progress import Progress, Silent
from ds_accum.compare.result import Comparison, VariantResult
from ds_accum.compare.running import Run
from tests.compare.runs import LAUNCHER, is_running, misbehaving, small_spec, until, workers_in

ALL = ("zero-0 stock", "zero-0 token", "zero-1 stock", "zero-1 token", "ddp", "single")


class Recording(Silent):
    """Keeps what is shown."""

    def __init__(self) -> None:
        self.shown: list[Progress] = []
        self.notes: list[str] = []

    def show(self, progress: Progress) -> None:
        self.shown.append(progress)

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the launches have their folders."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def by_name(comparison: Comparison) -> dict[str, VariantResult]:
    return {result.name: result for result in comparison.results}


def run(**options: Any) -> Comparison:
    spec = small_spec(**{name: options.pop(name) for name in ("timeout_s", "stages") if name in options})
    return Run(spec, LAUNCHER, **{"memory": False, **options}).run(Silent())


def test_every_variant_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, temporary: Path) -> None:
    launches = misbehaving(monkeypatch, tmp_path, {})
    recording = Recording()
    comparison = Run(small_spec(), LAUNCHER, memory=True, misuse=True).run(recording)
    assert tuple(result.name for result in comparison.results) == ALL
    for result in comparison.results:
        assert (result.status, result.failure) == ("done", None)
        assert result.parity is not None and result.communication is not None and result.speed is not None
        assert result.memory is not None
        assert bool(result.misuses) == result.name.startswith("zero")
    assert comparison.parameters == 1234
    assert [launch["variants"] for launch in launches()] == [list(ALL), *([name] for name in ALL), list(ALL[:4])]
    assert [launch["kind"] for launch in launches()] == ["parity", *["memory"] * 6, "misuse"]
    shares = [progress.share for progress in recording.shown]
    assert shares == sorted(shares) and shares[0] == 0 and shares[-1] == pytest.approx(1)
    assert list(temporary.iterdir()) == []


def test_a_variant_that_fails_on_all_ranks_alike_does_not_end_the_launch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, temporary: Path
) -> None:
    launches = misbehaving(monkeypatch, tmp_path, {"zero-0 token": "failed in step"})
    results = by_name(run())
    assert results["zero-0 token"].status == "failed"
    assert results["zero-0 token"].failure == "ValueError: every rank agreed that this fails"
    assert {result.status for name, result in results.items() if name != "zero-0 token"} == {"done"}
    assert len(launches()) == 1


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("raises", "rank 1 exited with 1: ValueError: only rank 1 fails"),
        ("killed", "rank 1 was killed (SIGKILL)"),
    ],
)
def test_a_variant_that_ends_its_launch_is_left_out_of_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, temporary: Path, how: str, sentence: str
) -> None:
    launches = misbehaving(monkeypatch, tmp_path, {"zero-1 stock": how})
    results = by_name(run())
    failure = results["zero-1 stock"].failure
    assert results["zero-1 stock"].status == "failed" and failure is not None
    assert failure.splitlines()[-1] == sentence
    assert ("Traceback (most recent call last):" in failure) == (how == "raises")
    assert {result.status for name, result in results.items() if name != "zero-1 stock"} == {"done"}
    rest = [name for name in ALL if name != "zero-1 stock"]
    assert [launch["variants"] for launch in launches()] == [list(ALL), rest]
    assert workers_in(temporary) == []


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("sleeps", r"no progress for 2 s: rank 1 is behind, in sleep_without_end \(.*fake_worker.py:\d+\); rank 0 waits for it"),
        ("stopped", r"no progress for 2 s: rank 1 is suspended \(SIGSTOP\)"),
        ("leaves early", r"no progress for 2 s: rank 1 ended early, and the others wait"),
    ],
)  # fmt: skip
def test_a_hang_names_the_rank_that_is_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, temporary: Path, how: str, sentence: str
) -> None:
    misbehaving(monkeypatch, tmp_path, {"zero-0 stock": how})
    results = by_name(run(timeout_s=2.0, stages=(0,)))
    import re

    assert re.fullmatch(sentence, results["zero-0 stock"].failure or "")
    assert {result.status for name, result in results.items() if name != "zero-0 stock"} == {"done"}
    assert workers_in(temporary) == []
    assert list(temporary.iterdir()) == []


def test_what_a_rank_has_started_ends_with_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, temporary: Path) -> None:
    misbehaving(monkeypatch, tmp_path, {"ddp": "has a child"})
    assert by_name(run(stages=(0,)))["ddp"].status == "failed"
    child = int((tmp_path / "child").read_text("utf-8"))
    until(lambda: not is_running(child))


def test_a_launch_that_begins_no_variant_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, temporary: Path
) -> None:
    launches = misbehaving(monkeypatch, tmp_path, {"start": ""})
    results = by_name(run())
    assert {result.status for result in results.values()} == {"failed"}
    for result in results.values():
        assert "ImportError: No module named 'something'" in (result.failure or "").splitlines()[-1]
    assert len(launches()) == 1


def test_lines_that_are_no_events_are_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, temporary: Path
) -> None:
    misbehaving(monkeypatch, tmp_path, {"zero-0 stock": "garbage"})
    assert {result.status for result in by_name(run()).values()} == {"done"}


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("unreadable result", "the worker's result can't be read: status: Input should be"),
        ("no result", "the worker finished without a result"),
    ],
)
def test_a_variant_without_a_readable_result_has_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, temporary: Path, how: str, sentence: str
) -> None:
    misbehaving(monkeypatch, tmp_path, {"zero-0 stock": how})
    results = by_name(run())
    assert results["zero-0 stock"].status == "failed"
    assert (results["zero-0 stock"].failure or "").startswith(sentence)
    assert results["zero-0 token"].status == "done"


def test_a_failure_in_the_memory_launch_keeps_the_parity(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, temporary: Path
) -> None:
    misbehaving(monkeypatch, tmp_path, {"memory: zero-0 stock": "raises"})
    results = by_name(run(memory=True, stages=(0,)))
    failed = results["zero-0 stock"]
    assert failed.status == "failed" and failed.parity is not None and failed.memory is None
    assert (failed.failure or "").splitlines()[-1].startswith("memory: rank 1 exited with 1: ValueError")
    assert results["zero-0 token"].memory is not None


def test_a_misuse_that_ends_its_launch_keeps_what_was_tried_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, temporary: Path
) -> None:
    launches = misbehaving(monkeypatch, tmp_path, {"misuse: zero-0 token": "raises"})
    results = by_name(run(misuse=True))
    assert [bool(results[name].misuses) for name in ALL] == [True, False, True, True, False, False]
    assert results["zero-0 token"].status == "failed"
    tried = [launch["variants"] for launch in launches() if launch["kind"] == "misuse"]
    assert tried == [list(ALL[:4]), ["zero-1 stock", "zero-1 token"]]


def test_a_refused_variant_is_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, temporary: Path) -> None:
    launches = misbehaving(monkeypatch, tmp_path, {})
    refused = VariantResult(name="zero-0 stock", status="refused", failure="DSA101 no")
    results = by_name(run(refused=[refused]))
    assert results["zero-0 stock"] == refused
    assert launches()[0]["variants"] == list(ALL[1:])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_keeps_what_was_finished(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, temporary: Path, number: signal.Signals
) -> None:
    launches = misbehaving(monkeypatch, tmp_path, {"zero-0 token": "sleeps"})
    started = Run(small_spec(), LAUNCHER)

    def interrupt() -> None:
        until(lambda: started.comparison().results[0].status == "done")
        os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    thread = threading.Thread(target=interrupt)
    thread.start()
    results = by_name(started.run(Silent()))
    thread.join()
    assert started.interrupted
    assert [results[name].status for name in ALL] == ["done", *["unfinished"] * 5]
    # What rank 0 says when it is asked to end.
    assert [results[name].parity is not None for name in ALL] == [True, True, *[False] * 4]
    assert not is_running(launches()[0]["pid"])
    assert workers_in(temporary) == [] and list(temporary.iterdir()) == []
    assert signal.getsignal(number) == before
