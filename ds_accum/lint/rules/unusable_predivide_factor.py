"""Gradients are to be divided by zero, or by something that is no number.

`gradient_predivide_factor` is taken as it comes and used in the first reduction of gradients, where 0 is a
`ZeroDivisionError` and a string a `TypeError`. ZeRO-3 divides as torch does: by 0 every gradient becomes infinite, and
every step is skipped as an overflow. Where the factor is not used, as in ZeRO-1 with `reduce_scatter`, any value goes
unnoticed.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.mends import number_in, removed, without_quotes
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import zero_stage
from ds_accum.lint.wording import shown, what

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "gradient_predivide_factor": "1.0"
}
""",
        reports=(
            Report(
                at="gradient_predivide_factor",
                message='gradient_predivide_factor must be a number other than 0, but is the string "1.0"',
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "gradient_predivide_factor": 1.0
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "gradient_predivide_factor": 0,
  "zero_optimization": {"stage": 3, "reduce_scatter": false}
}
""",
        reports=(
            Report(
                at="gradient_predivide_factor",
                message="gradient_predivide_factor 0 makes every gradient infinite at ZeRO stage 3 (line 5), and every"
                " step is skipped",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 3, "reduce_scatter": false}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "gradient_predivide_factor": 2
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    if "gradient_predivide_factor" not in context.values:
        return
    factor = context.values["gradient_predivide_factor"]
    is_number = isinstance(factor, int | float)
    if (is_number and factor != 0) or not support.divides_before_reducing(context.config):
        return
    at = ("gradient_predivide_factor",)
    help_ = "leave it out, or write a number such as 1"
    if is_number and context.config.zero_stage == 3:
        yield Finding(
            at=at,
            when=When.NEVER,
            message=f"gradient_predivide_factor {shown(factor)} makes every gradient infinite at {zero_stage(context)},"
            " and every step is skipped",
            help=help_,
            fix=removed(at, is_safe=False),
        )
        return
    yield Finding(
        at=at,
        message=f"gradient_predivide_factor must be a number other than 0, but is {what(factor)}",
        help=help_,
        fix=without_quotes(at, factor) if number_in(factor) else removed(at, is_safe=False),
    )


RULE = Rule(
    code="DSA403",
    name="unusable-predivide-factor",
    summary="gradient_predivide_factor is 0 or no number where it is used",
    rationale=__doc__,
    when=When.FIRST_STEP,
    check=check,
    bad=BAD,
    good=GOOD,
)
