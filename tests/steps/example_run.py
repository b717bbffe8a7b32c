"""Runs that never happened, as the engine would have logged them: real reports, the same on every machine."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from ds_accum.engine.report import EventCounts, SkipReason, StepReport
from ds_accum.engine.step_log import StepLog

RIGHT_EVENTS = EventCounts(backwards=8, reductions=1, norms=1, updates=1, zeroings=1)


def report(step: int = 1, **changes: Any) -> StepReport:
    """A step as most are, on four ranks; `changes` are fields of StepReport."""
    skipped = changes.get("applied") is False
    values: dict[str, Any] = {
        "step": step,
        "micro_batches": 8,
        "ranks": 4,
        "num_tokens": 4000,
        "min_rank_tokens": 900,
        "min_rank": 1,
        "max_rank_tokens": 1150,
        "max_rank": 3,
        "loss": 2.5,
        "grad_norm": 0.5,
        "clip_coefficient": 1.0,
        "learning_rate": 1e-4,
        "loss_scale": 1.0,
        "applied": True,
        "skipped_because": None,
        "weighting_skew": 1.25,
        "misuses": {},
        "events": EventCounts(backwards=8, reductions=1, norms=1, updates=0 if skipped else 1, zeroings=1),
        "seconds": 0.5,
    }
    return StepReport(**{**values, **changes})


def write_log(path: Path, reports: Iterator[StepReport] | list[StepReport]) -> Path:
    """The log of these steps, appended to what is there."""
    with StepLog(str(path)) as log:
        for item in reports:
            log.write(item)
    return path


def example_run(steps: int = 400) -> Iterator[StepReport]:
    """A fine-tuning in float16 with sequences of all lengths on four ranks: it overflows at first, spikes once, and has
    one step in which no token counts."""
    random = Random(7)
    scale = 65536.0
    for step in range(1, steps + 1):
        tokens = [sum(random.choice((40, 120, 300, 900)) for _ in range(8)) for _ in range(4)]
        tokens[2] += 400
        skipped: SkipReason | None = None
        if step in (1, 2, 251):
            skipped = "overflow"
        elif step == 177:
            skipped, tokens = "no counted token", [0, 0, 0, 0]
        spike = 25 * math.exp(-abs(step - 310) / 2)
        norm = round(0.5 + 2.2 * math.exp(-step / 60) + 0.25 * random.random() + spike, 6)
        most, fewest = max(tokens), min(tokens)
        yield report(
            step,
            num_tokens=sum(tokens),
            min_rank_tokens=fewest,
            min_rank=tokens.index(fewest),
            max_rank_tokens=most,
            max_rank=tokens.index(most),
            loss=round(1.6 + 2.7 * math.exp(-step / 110) + 0.2 * random.random() + spike / 25, 6)
            if sum(tokens)
            else None,
            grad_norm=math.inf if skipped == "overflow" else norm if sum(tokens) else None,
            clip_coefficient=min(1.0, 1.0 / (norm + 1e-6)) if skipped is None else None,
            learning_rate=round(2e-5 * min(step / 40, 1.0) * (1 - step / (steps + 1)), 10),
            loss_scale=scale,
            applied=skipped is None,
            skipped_because=skipped,
            weighting_skew=round(1.2 + 0.9 * random.random(), 4) if sum(tokens) else None,
            events=EventCounts(backwards=8, reductions=8, norms=1, updates=int(skipped is None), zeroings=1),
            seconds=round(1.1 + most / 20000 + (6.0 if step % 100 == 0 else 0.1 * random.random()), 4),
        )
        if skipped == "overflow":
            scale /= 2


def eventful_run(path: Path) -> Path:
    """The log of the example run with all that a report can meet: it was killed in the middle of a line, resumed from an
    older checkpoint, clipped twice in one step and did not update in another."""
    steps = list(example_run())
    write_log(path, steps[:230])
    path.write_bytes(path.read_bytes()[:-100])
    for step, wrong in ((260, {"norms": 2}), (300, {"updates": 0})):
        events = dataclasses.replace(RIGHT_EVENTS, **wrong)
        steps[step - 1] = dataclasses.replace(steps[step - 1], events=events, misuses={"StepOrderError": 1})
    return write_log(path, steps[200:])
