"""RunSpec -> launches -> Comparison.

    parity, communication and speed    one launch of all variants, again without each that breaks it
    memory                             a launch of its own for each variant: what one left behind is no other's
    misuse                             one launch of DeepSpeed's variants, again from where one breaks it

What was measured stays, whatever ends the comparison.
"""

from __future__ import annotations

import os
import platform
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ds_accum import __version__
from ds_accum.compare.jobs import Event, Job, JobKind, suspect
from ds_accum.compare.launchers import Launcher
from ds_accum.compare.launching import Launch
from ds_accum.compare.progress import Progress, Reporter
from ds_accum.compare.result import Comparison, VariantResult
from ds_accum.compare.spec import RunSpec

__all__ = ["FORMAT", "Run"]

FORMAT = 1
"""Of `Comparison`."""

_RESULT = TypeAdapter(VariantResult)

# The work of a launch in steps of one variant: what starting Python, torch and DeepSpeed takes.
_START_WORK = 15.0
_TASKS: Mapping[JobKind, str] = {
    "parity": "parity, communication and speed",
    "memory": "memory",
    "misuse": "misuse",
}


class Run:
    """One comparison. `interrupted` says whether Ctrl-C, or a signal that ends a process, cut it short."""

    def __init__(
        self,
        spec: RunSpec,
        launcher: Launcher,
        *,
        refused: Sequence[VariantResult] = (),
        memory: bool = True,
        misuse: bool = False,
    ) -> None:
        self._spec = spec
        self._launcher = launcher
        self._results = {
            variant.name: VariantResult(name=variant.name, status="unfinished") for variant in spec.variants
        }
        self._results |= {result.name: result for result in refused}
        self._about: dict[str, Any] = {}
        self._memory = memory
        self._misuse = misuse
        self.interrupted = False

    def run(self, reporter: Reporter) -> Comparison:
        """Runs all launches and gives what came out; after an interrupt what had come out until then."""
        work = _Work(self._planned())
        try:
            with _signals_interrupt():
                for job in self._jobs():
                    self._run_job(job, work, reporter)
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            reporter.close()
        return self.comparison()

    def comparison(self) -> Comparison:
        """What is known by now."""
        return Comparison(
            format=FORMAT,
            spec=self._spec,
            versions={**_versions(), **self._about.get("versions", {})},
            machine={**_machine(self._spec), **self._about.get("machine", {})},
            parameters=self._about.get("parameters", 0),
            results=tuple(self._results[variant.name] for variant in self._spec.variants),
        )

    # ------------------------------------------------------------------------------------------------------- the jobs

    def _planned(self) -> float:
        """The work of all the jobs, as long as none fails."""
        return sum(_work_of(job, self._spec) for job in self._jobs())

    def _jobs(self) -> Iterator[Job]:
        """The jobs; a variant that has failed by the time of one is left out of it."""
        if names := self._alive():
            yield Job(kind="parity", variants=names)
        if self._memory:
            for name in self._alive():
                yield Job(kind="memory", variants=(name,))
        deepspeed = {variant.name for variant in self._spec.variants if variant.stage is not None}
        if self._misuse and (names := tuple(name for name in self._alive() if name in deepspeed)):
            yield Job(kind="misuse", variants=names)

    def _alive(self) -> tuple[str, ...]:
        return tuple(name for name, result in self._results.items() if result.status in ("done", "unfinished"))

    def _run_job(self, job: Job, work: _Work, reporter: Reporter) -> None:
        """Launches a job, and what is left of it again after each variant that ends a launch."""
        work.begin(job, self._spec)
        while job.variants:
            culprit = self._launch(job, work, reporter)
            if culprit is None:
                break
            reporter.note(f"{culprit} failed: {_sentence(self._results[culprit].failure)}")
            job = replace(job, variants=self._left(job))
        work.end()

    def _left(self, job: Job) -> tuple[str, ...]:
        """What a job is launched for again: parity needs all variants side by side, the rest what is missing."""
        alive = [name for name in job.variants if self._results[name].status in ("done", "unfinished")]
        if job.kind == "misuse":
            alive = [name for name in alive if not self._results[name].misuses]
        return tuple(alive)

    def _launch(self, job: Job, work: _Work, reporter: Reporter) -> str | None:
        """One launch; the variant that ended it, which is marked as failed, None where it ended well.

        Where no variant can be blamed, all of them have failed.
        """
        events: list[Event] = []
        reporter.show(work.progress(f"{_TASKS[job.kind]}: starting {self._spec.world_size} processes"))
        with Launch(job, self._spec, self._launcher) as launch:
            try:
                for event in launch.events():
                    events.append(event)
                    self._take(job, event)
                    work.take(event)
                    if event.variant is not None:
                        reporter.show(work.progress(f"{_TASKS[job.kind]}: {event.variant}"))
            except KeyboardInterrupt:
                for event in launch.last_words():
                    self._take(job, event)
                raise
            failure = launch.failure
        if failure is None:
            for name in self._left(job):
                self._check_measured(job, name)
            return None
        # Said by the worker itself, in the same launch: that variant is why it ended.
        told = [event.variant for event in events if event.kind == "failed" and event.variant in job.variants]
        culprit = told[-1] if told else suspect(job, events)
        if culprit is None or (self._results[culprit].status == "failed" and not told):
            for name in self._left(job):
                self._fail(job, name, failure)
            return job.variants[0]
        if not told:
            self._fail(job, culprit, failure)
        return culprit

    # ------------------------------------------------------------------------------------------------------ the results

    def _take(self, job: Job, event: Event) -> None:
        """Keeps what an event says."""
        for name in ("versions", "machine", "parameters"):
            if name in event.fields:
                self._about[name] = event.fields[name]
        if event.variant not in job.variants or event.variant is None:
            return
        if event.kind == "failed":
            self._fail(job, event.variant, str(event.fields.get("why", "the worker does not say why")))
        elif event.kind == "result":
            try:
                partial = _RESULT.validate_python(event.fields.get("result"))
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                where = ".".join(map(str, first["loc"]))
                self._fail(job, event.variant, f"the worker's result can't be read: {where}: {first['msg']}")
                return
            self._results[event.variant] = _merged(self._results[event.variant], partial)

    def _fail(self, job: Job, name: str, why: str) -> None:
        """Marks a variant; what was measured before stays. The last line of `why` is the sentence that is shown."""
        end, newline, sentence = why.rpartition("\n")
        of = "" if job.kind == "parity" else f"{job.kind}: "
        failure = f"{end}{newline}{of}{sentence}"
        self._results[name] = replace(self._results[name], status="failed", failure=failure)

    def _check_measured(self, job: Job, name: str) -> None:
        """A worker that ends well has to have said something of every variant."""
        result = self._results[name]
        missing = {
            "parity": result.status == "unfinished",
            "memory": result.memory is None,
            "misuse": not result.misuses,
        }
        if missing[job.kind]:
            self._fail(job, name, "the worker finished without a result")


class _Work:
    """How much is done of what is planned, in steps of one variant."""

    def __init__(self, planned: float) -> None:
        self._planned = max(planned, 1.0)
        self._before = 0.0
        self._job = 0.0
        self._steps: dict[str, float] = {}
        self._started = False
        self._highest = 0.0

    def begin(self, job: Job, spec: RunSpec) -> None:
        self._job = _work_of(job, spec)
        self._steps, self._started = {}, False
        self._each = max(self._job - _START_WORK, 0.0) / len(job.variants)

    def take(self, event: Event) -> None:
        self._started = True
        if event.variant is None:
            return
        done, of = event.fields.get("done"), event.fields.get("of")
        if event.kind == "progress" and isinstance(done, int | float) and isinstance(of, int | float) and of > 0:
            self._steps[event.variant] = self._each * min(1.0, max(0.0, done / of))
        elif event.kind in ("result", "failed"):
            self._steps[event.variant] = self._each

    def end(self) -> None:
        self._before += self._job
        self._job, self._steps, self._started = 0.0, {}, False

    def progress(self, doing: str) -> Progress:
        """Never less than before: a launch that is repeated adds to the time, not to the work."""
        done = self._before + sum(self._steps.values()) + (_START_WORK if self._started else 0.0)
        self._highest = min(1.0, max(self._highest, done / self._planned))
        return Progress(share=self._highest, doing=doing)


def _work_of(job: Job, spec: RunSpec) -> float:
    # Besides its steps a variant has to be built, and its collectives are looked at in a few more.
    steps = {"parity": spec.steps + 6, "memory": 3, "misuse": 10}[job.kind]
    return _START_WORK + steps * len(job.variants)


def _merged(known: VariantResult, partial: VariantResult) -> VariantResult:
    """What was measured by one launch over what was by others."""
    measured = {
        item.name: value
        for item in fields(VariantResult)
        if item.name not in ("name", "status", "failure") and (value := getattr(partial, item.name)) not in (None, ())
    }
    status = known.status if partial.status == "unfinished" and known.status != "unfinished" else partial.status
    return replace(known, status=status, failure=partial.failure or known.failure, **measured)


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """SIGTERM and SIGHUP do what Ctrl-C does, so that nothing is left running and what is known is written."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    # A shell that starts a job in the background has Ctrl-C ignored; whoever sends it to us means it.
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _versions() -> dict[str, str]:
    versions = {"ds-accum": __version__, "Python": platform.python_version()}
    for package, name in (("deepspeed", "DeepSpeed"), ("torch", "torch")):
        try:
            versions[name] = version(package)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def _machine(spec: RunSpec) -> dict[str, str]:
    """What the times depend on, and nothing that names the machine or its owner."""
    machine = {
        "processor": _processor(),
        "cores": str(os.cpu_count() or "unknown"),
        "system": platform.system(),
        "accelerator": "none (CPU)" if spec.device == "cpu" else spec.device,
    }
    try:
        machine["memory"] = f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB"
    except (ValueError, OSError):
        machine["memory"] = "unknown"
    return machine


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


def _sentence(failure: str | None) -> str:
    return (failure or "").rpartition("\n")[2]
