"""A pipeline is to be timed, and its first backward starts a timer that runs already.

The pipeline engine starts its timers for the backward pass by itself, and since 0.18.3 a hook on the outputs of every
stage but the last starts the same ones again: "bwd_microstep timer has already been started". What switches them on is
`wall_clock_breakdown`, and with it `flops_profiler.enabled`; `autotuning.enabled` starts one timer of them, which fails
from the second micro-batch on. Without a pipeline all of these work.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ds_accum.config.document import Path
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.fix import Fix, RemoveKey
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import dotted, shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_accumulation_steps": 2,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "wall_clock_breakdown": true
}
""",
        launch=Launch(world_size=2, pipeline_parallel_size=2, client_optimizer=False),
        reports=(
            Report(
                at="wall_clock_breakdown",
                message="wall_clock_breakdown true makes the first backward of a pipeline, here of size 2, start a"
                " timer twice",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "gradient_accumulation_steps": 2,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "flops_profiler": {"enabled": true}
}
""",
        launch=Launch(world_size=2, pipeline_parallel_size=2, client_optimizer=False),
        reports=(
            Report(
                at="flops_profiler.enabled",
                message="flops_profiler.enabled true makes the first backward of a pipeline, here of size 2, start a"
                " timer twice",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "flops_profiler": {}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_accumulation_steps": 2,
  "gradient_clipping": 0.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "wall_clock_breakdown": false
}
""",
        launch=Launch(world_size=2, pipeline_parallel_size=2, client_optimizer=False),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_accumulation_steps": 2,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "wall_clock_breakdown": true
}
""",
        launch=Launch(world_size=2, client_optimizer=False),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    stages = context.launch.pipeline_parallel_size
    if stages == 1 or context.version < (0, 18, 3):
        return
    for path, value in _switches(context):
        yield Finding(
            at=path,
            message=f"{dotted(path)} {shown(value)} makes the first backward of a pipeline, here of size {stages},"
            " start a timer twice",
            help="remove it",
            fix=Fix(title=f"remove {dotted(path)}", changes=(RemoveKey(path),), is_safe=True),
        )


def _switches(context: LintContext) -> Iterator[tuple[Path, Any]]:
    """What switches the timers on, with its value."""
    breakdown = context.values.get("wall_clock_breakdown")
    if breakdown and isinstance(breakdown, int):
        yield ("wall_clock_breakdown",), breakdown
    profiler, autotuning = context.block("flops_profiler"), context.block("autotuning")
    if profiler.is_mapping and profiler.get("enabled"):
        yield ("flops_profiler", "enabled"), profiler["enabled"]
    ledger = context.batch.ledger()
    if autotuning.is_mapping and autotuning.get("enabled") and ledger and ledger.gradient_accumulation_steps > 1:
        yield ("autotuning", "enabled"), autotuning["enabled"]


RULE = Rule(
    code="DSA018",
    name="timed-pipeline",
    summary="a pipeline is to be timed, and its first backward starts a timer that runs already",
    rationale=__doc__,
    when=When.FIRST_STEP,
    check=check,
    bad=BAD,
    good=GOOD,
)
