"""ZenFlow is to find its update interval by itself, and every gradient is divided by zero.

ZenFlow applies the important part of a gradient at once and the rest after `update_interval` steps. The engine takes
that number for its accumulation steps, and for "auto", which is the default and what the tutorial recommends, it takes
0. Since 0.18.3 `backward` divides by the accumulation steps also where there are fewer than two: the first step makes
every parameter infinite or NaN, or, in fp16, every step is skipped. A call of `backward` with `scale_wrt_gas=False`, as
Hugging Face's Trainer does it, does not divide.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import setting

BAD = (
    Example(
        config="""{
  "train_batch_size": 2,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {"device": "cpu"},
    "zenflow": {"topk_ratio": 0.1}
  }
}
""",
        launch=Launch(world_size=1, framework="raw", client_optimizer=False),
        reports=(
            Report(
                at="zero_optimization.zenflow.update_interval",
                message='zenflow takes update_interval "auto" (the default) for 0 accumulation steps, and divides every'
                " gradient by them",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 2,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {"device": "cpu"},
    "zenflow": {"topk_ratio": 0.1, "update_interval": 1}
  }
}
""",
        launch=Launch(world_size=1, framework="raw", client_optimizer=False),
    ),
)

_AT = ("zero_optimization", "zenflow", "update_interval")


def check(context: LintContext) -> Iterator[Finding]:
    zenflow, config, launch = support.zenflow(context.config), context.config, context.launch
    if zenflow is None or zenflow.errors or context.version < (0, 18, 3):
        return
    interval = zenflow["update_interval"]
    if interval != "auto" or launch.framework == "huggingface" or launch.pipeline_parallel_size > 1:
        return
    if config.zero_stage not in (1, 2, 3) or support.uses_bf16_optimizer(config):
        return  # without ZenFlow, or not at all: another rule says so
    yield Finding(
        at=_AT,
        message=f"zenflow takes {setting(context, interval, *_AT)} for 0 accumulation steps, and divides every gradient"
        " by them",
        help='give a number, such as "update_interval": 4',
        depends_on=None
        if launch.framework == "raw"
        else "unless backward is called with scale_wrt_gas=False, as Hugging Face's Trainer does",
        # Stage 3 was only read: it runs on CUDA alone.
        severity=Severity.WARNING if config.zero_stage == 3 else None,
    )


RULE = Rule(
    code="DSA213",
    name="zenflow-without-update-interval",
    summary="an update interval that ZenFlow is to find by itself divides every gradient by zero",
    rationale=__doc__,
    when=When.NEVER,
    check=check,
    bad=BAD,
    good=GOOD,
)
