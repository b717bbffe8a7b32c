"""What is injected where, and what has to come of it: an Injection, its jobs for all stages, and the checks of answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from cases import Case, Dtype
from launch import Answer, Job

EVERY_STAGE = (0, 1, 2, 3)
MODES = ("raise", "warn", "count")


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """A function of `misuses.py`, on some stages. `error` is what it has to raise, None for a loop that is right.

    The message has to match `says`. Warned about and counted, it is tried on `let_pass` alone, as many stages break
    inside DeepSpeed once it is let pass.
    """

    function: str
    module: str = "guards.misuses"
    stages: tuple[int, ...] = EVERY_STAGE
    dtype: Dtype = "fp32"
    error: str | None = None
    says: str = ""
    let_pass: tuple[int, ...] = ()
    windows: tuple[int, ...] = (2, 2)
    clipping: float = 0.0
    config: Mapping[str, Any] = field(default_factory=dict)
    block: Mapping[str, Any] = field(default_factory=dict)

    def case(self, stage: int) -> Case:
        return Case(
            name=f"zero-{stage} {self.dtype} {self.function}",
            stage=stage,
            dtype=self.dtype,
            micro_batch_size=1,
            windows=self.windows,
            clipping=self.clipping,
            config=self.config,
            block=self.block,
        )

    def modes(self, stage: int) -> tuple[str, ...]:
        return MODES if stage in self.let_pass else ("raise",)

    def job(self, stage: int) -> Job:
        case = self.case(stage)
        arguments = {
            "case": asdict(case),
            "module": self.module,
            "functions": [self.function],
            "modes": self.modes(stage),
        }
        return Job(name=self._name(stage), function="guards.loop:attempt", arguments=arguments)

    def found(self, answers: Mapping[str, Answer], stage: int, mode: str) -> list[dict[str, Any]]:
        """What became of it on each rank."""
        answer = answers[self._name(stage)]
        assert not answer.failed, answer.report
        return [value[f"{self.function} {mode}"] for value in answer.values]

    def _name(self, stage: int) -> str:
        settings = (self.clipping, self.windows, dict(self.config), dict(self.block))
        return " ".join((self.case(stage).name, *map(str, settings)))


def jobs_of(*injections: Injection) -> list[Job]:
    """A job for each stage of each."""
    return [injection.job(stage) for injection in injections for stage in injection.stages]


def trials(injections: Iterable[Injection], *modes: str) -> list[Any]:
    """(injection, stage, mode), for parametrizing: those of the modes that are tried."""
    import pytest

    return [
        pytest.param(injection, stage, mode, id=f"zero-{stage}-{injection.dtype}-{injection.function}-{mode}")
        for injection in injections
        for stage in injection.stages
        for mode in injection.modes(stage)
        if mode in modes
    ]


def check_misuse(injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]) -> None:
    """That each rank was told, in the mode's way, in a sentence with a place and a remedy."""
    for found in injection.found(answers, stage, mode):
        ours = [text for text in found["warnings"] if re.search(injection.says, text)]
        counted = [step.get(injection.error, 0) for step in found["misuses"]]
        if mode == "raise":
            assert found["error"] == injection.error, found
            assert found["pending"].get(injection.error) == 1
            assert found["warnings"] == []
            text = found["text"]
        else:
            assert found["error"] is None, found
            assert sum(counted) == 1, found["misuses"]
            assert len(ours) == (1 if mode == "warn" else 0), found["warnings"]
            if mode == "count":
                assert found["warnings"] == []
                return
            text = ours[0]
        assert re.search(injection.says, text), text
        assert re.search(r"\bstep 11?\b", text), text
        # What it would have cost, then what to do.
        fact, _, remedy = text.partition("; ")
        assert ":" in fact and remedy, text
        assert not text[0].isupper()
        assert not text.endswith(".")


def check_silence(injection: Injection, stage: int, mode: str, answers: Mapping[str, Answer]) -> None:
    """That no rank was told anything."""
    for found in injection.found(answers, stage, mode):
        assert found["error"] is None, found
        assert found["warnings"] == []
        assert found["misuses"] and all(not misuses for misuses in found["misuses"])
