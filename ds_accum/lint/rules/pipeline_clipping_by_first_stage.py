"""A pipeline in fp32 without ZeRO clips by the norm of its first stage alone.

The norm that gradients are clipped by is that of the whole model, summed over the stages of the pipeline. In this one
set-up DeepSpeed counts only the parameters of ranks whose model parallel rank is 0, which is the first stage: the other
stages are clipped by a norm that is not theirs, and the model by one that is too small. With ZeRO-1, or in bf16 or
fp16, the norm is right.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import setting, zero_stage

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 0.01,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0, "momentum": 0.9}}
}
""",
        launch=Launch(world_size=2, pipeline_parallel_size=2),
        reports=(
            Report(
                at="gradient_clipping",
                message="gradient_clipping 0.01 (line 3) is compared with the norm of the first of 2 pipeline stages"
                " alone, in fp32 at ZeRO stage 0 (the default)",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "gradient_clipping": 0.01,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0, "momentum": 0.9}},
  "zero_optimization": {"stage": 1}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 0.01,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0, "momentum": 0.9}},
  "zero_allow_untested_optimizer": true,
  "zero_optimization": {"stage": 1}
}
""",
        launch=Launch(world_size=2, pipeline_parallel_size=2),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    config, stages = context.config, context.launch.pipeline_parallel_size
    clipping = config.top.get("gradient_clipping")
    if stages == 1 or config.zero_stage != 0 or support.model_dtype(config) != "fp32":
        return
    if not isinstance(clipping, int | float) or clipping <= 0:
        return
    if support.has_optimizer(config, context.launch) is False:
        return
    yield Finding(
        at=("gradient_clipping",),
        message=f"{setting(context, clipping, 'gradient_clipping')} is compared with the norm of the first of {stages}"
        f" pipeline stages alone, in fp32 at {zero_stage(context)}",
        help="use ZeRO stage 1",
        fix=Fix(title="use ZeRO stage 1", changes=(SetValue(("zero_optimization", "stage"), 1),)),
    )


RULE = Rule(
    code="DSA903",
    name="pipeline-clipping-by-first-stage",
    summary="a pipeline in fp32 without ZeRO clips by the norm of its first stage alone",
    rationale=__doc__,
    when=When.NEVER,
    check=check,
    severity=Severity.WARNING,
    bad=BAD,
    good=GOOD,
)
