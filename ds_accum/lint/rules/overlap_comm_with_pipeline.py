"""The pipeline engine switches `overlap_comm` off.

It schedules its reductions itself. DeepSpeed logs a line and goes on without the overlap, whatever the config says.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.rule import Example, Report, Rule

_AT = ("zero_optimization", "overlap_comm")

BAD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 1, "overlap_comm": true}
}
""",
        launch=Launch(world_size=2, pipeline_parallel_size=2, client_optimizer=False),
        reports=(
            Report(
                at="zero_optimization.overlap_comm",
                message="the pipeline engine (2 stages) switches overlap_comm off",
            ),
        ),
        fixed="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 1, "overlap_comm": false}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 1, "overlap_comm": false}
}
""",
        launch=Launch(world_size=2, pipeline_parallel_size=2, client_optimizer=False),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    config, stages = context.config, context.launch.pipeline_parallel_size
    if stages == 1 or config.zero_stage != 1 or support.uses_bf16_optimizer(config):
        return
    if not support.overlaps_communication(config):
        return
    yield Finding(
        at=_AT,
        message=f"the pipeline engine ({stages} stages) switches overlap_comm off",
        help="set it to false, which is what runs",
        fix=Fix('set "overlap_comm": false', (SetValue(_AT, False),), is_safe=True),
    )


RULE = Rule(
    code="DSA613",
    name="overlap-comm-with-pipeline",
    summary="the pipeline engine switches overlap_comm off",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
)
