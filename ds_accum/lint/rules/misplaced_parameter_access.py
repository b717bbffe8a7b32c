"""With round_robin_gradients the functions that look up a parameter return another one's values.

`round_robin_gradients` deals the parameters to the ranks in another order. Training is right, and so are checkpoints.
But `safe_get_full_fp32_param` and its companions, which scripts use to log, to average or to prune weights, look in the
old order: what they return, and what they set, belongs to other parameters.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.launch_facts import is_one_rank
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import zero_stage

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 2, "round_robin_gradients": true}
}
""",
        launch=Launch(world_size=2),
        reports=(
            Report(
                at="zero_optimization.round_robin_gradients",
                message="safe_get_full_fp32_param and its companions return the values of other parameters with"
                " round_robin_gradients at ZeRO stage 2 (line 4)",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 2}
}
""",
        launch=Launch(world_size=2),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    config = context.config
    if not context.block("zero_optimization").get("round_robin_gradients") or config.zero_stage not in (1, 2):
        return
    if is_one_rank(context) or support.uses_bf16_optimizer(config):
        return
    yield Finding(
        at=("zero_optimization", "round_robin_gradients"),
        message="safe_get_full_fp32_param and its companions return the values of other parameters with"
        f" round_robin_gradients at {zero_stage(context)}",
        help="leave it out if the script uses them",
    )


RULE = Rule(
    code="DSA906",
    name="misplaced-parameter-access",
    summary="with round_robin_gradients the functions that look up a parameter return another one's values",
    rationale=__doc__,
    when=When.NEVER,
    check=check,
    severity=Severity.INFO,
    bad=BAD,
    good=GOOD,
)
