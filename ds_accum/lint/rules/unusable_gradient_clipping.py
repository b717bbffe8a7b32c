"""The clipping threshold is no number.

DeepSpeed takes `gradient_clipping` as it comes and compares it with 0 at the first optimizer step: a string, "auto"
among them, a null, a list or an object is a `TypeError` there, after the model was loaded and a whole accumulation
window was computed. "auto" means something to the Hugging Face integration alone, which replaces it before DeepSpeed
sees it. Leaving the key out is no way to switch clipping off: the default is 1.0 since 0.19.3.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.fix import Fix
from ds_accum.lint.mends import replaced, without_quotes
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import what

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "gradient_clipping": "auto"
}
""",
        launch=Launch(world_size=1, framework="raw"),
        reports=(
            Report(at="gradient_clipping", message='gradient_clipping must be a number, but is the string "auto"'),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "gradient_clipping": null,
  "zero_optimization": {"stage": 3}
}
""",
        reports=(Report(at="gradient_clipping", message="gradient_clipping must be a number, but is null"),),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "gradient_clipping": 0,
  "zero_optimization": {"stage": 3}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "gradient_clipping": 1
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    if "gradient_clipping" not in context.values:
        return
    clipping = context.values["gradient_clipping"]
    if isinstance(clipping, int | float):
        return
    config = context.config
    # ZeRO-1 and 2 compare it already when they are built, if they are not to compute the norm.
    compares_at_start = (
        config.zero_stage in (1, 2)
        and not context.block("zero_optimization").get("compute_grad_norm", True)
        and not support.uses_bf16_optimizer(config)
    )
    yield Finding(
        at=("gradient_clipping",),
        when=When.START if compares_at_start else When.FIRST_STEP,
        message=f"gradient_clipping must be a number, but is {what(clipping)}",
        help=_help(clipping),
        fix=_fix(clipping),
    )


def _help(clipping: object) -> str:
    if clipping == "auto":
        return 'only the Hugging Face integration knows "auto": write a number, 0 for no clipping'
    return "write a number without quotes, 0 for no clipping"


def _fix(clipping: object) -> Fix | None:
    at = ("gradient_clipping",)
    # Null says that there is to be no clipping, or the default; 0 says the first.
    return replaced(at, 0, is_safe=False) if clipping is None else without_quotes(at, clipping)


RULE = Rule(
    code="DSA401",
    name="unusable-gradient-clipping",
    summary="gradient_clipping is no number",
    rationale=__doc__,
    when=When.FIRST_STEP,
    check=check,
    bad=BAD,
    good=GOOD,
)
