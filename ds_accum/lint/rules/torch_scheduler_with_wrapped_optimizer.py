"""One of torch's schedulers is to drive an optimizer that DeepSpeed has wrapped.

DeepSpeed hands a scheduler from the config the optimizer that the engine itself uses. With ZeRO, fp16 or bf16 that is a
wrapper, and torch's schedulers accept nothing but a torch optimizer: "DeepSpeedZeroOptimizer is not an Optimizer".
DeepSpeed's own schedulers look inside the wrapper, so does one that the script makes from a function.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.config.launch import Launch
from ds_accum.config.optimizers import NOT_FROM_A_FILE, deepspeed_schedulers, torch_schedulers
from ds_accum.lint.built_from_config import scheduler_from_config
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import zero_stage

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "zero_optimization": {"stage": 1},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "StepLR", "params": {"step_size": 100}}
}
""",
        launch=Launch(world_size=1, client_scheduler=False),
        reports=(
            Report(
                at="scheduler.type",
                message="torch's StepLR takes only an optimizer that is torch's own, but ZeRO"
                " stage 1 (line 3) wraps it",
            ),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "CosineAnnealingLR", "params": {"T_max": 100}}
}
""",
        launch=Launch(world_size=1, client_scheduler=False),
        reports=(
            Report(
                at="scheduler.type",
                message="torch's CosineAnnealingLR takes only an optimizer that is torch's own, but"
                " bf16 (line 3) wraps it",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "StepLR", "params": {"step_size": 100}}
}
""",
        launch=Launch(world_size=1, client_scheduler=False),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "zero_optimization": {"stage": 1},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 1000}}
}
""",
        launch=Launch(world_size=1, client_scheduler=False),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    name, built, config = context.block("scheduler").get("type"), scheduler_from_config(context), context.config
    if built is None or not isinstance(name, str) or config.zero_stage is None:
        return
    if name not in torch_schedulers() or name in NOT_FROM_A_FILE:
        return
    dtype = support.model_dtype(config)
    if config.zero_stage == 0 and dtype == "fp32":
        return
    # An old `bfloat16` block stands where the path `bf16` does not.
    block = context.block(dtype).path if dtype != "fp32" else ()
    wrapper = zero_stage(context) if config.zero_stage else f"{dtype} ({context.line(*block)})"
    yield Finding(
        at=("scheduler", "type"),
        message=f"torch's {name} takes only an optimizer that is torch's own, but {wrapper} wraps it",
        help=f"use one of DeepSpeed's own, {', '.join(deepspeed_schedulers())}, or pass a function that makes the"
        " scheduler to deepspeed.initialize",
        depends_on=built.depends_on,
    )


RULE = Rule(
    code="DSA514",
    name="torch-scheduler-with-wrapped-optimizer",
    summary="one of torch's schedulers is to drive an optimizer that DeepSpeed has wrapped",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
