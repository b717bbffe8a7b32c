"""The number of steps between two progress lines is one that no step can be divided by.

DeepSpeed computes `step % steps_per_print` after every optimizer step, with the value as the config has it. 0, often
meant as "never", is a `ZeroDivisionError` after the first one, and a string a `TypeError`. Since 0.15.2 nothing is
printed where the key is absent or null; before, the default was 10, and null failed as well.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.fix import Fix
from ds_accum.lint.mends import number_in, removed, without_quotes
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import what

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "steps_per_print": 0
}
""",
        reports=(
            Report(at="steps_per_print", message="steps_per_print must be a number other than 0, but is the number 0"),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "steps_per_print": "10"
}
""",
        reports=(
            Report(
                at="steps_per_print", message='steps_per_print must be a number other than 0, but is the string "10"'
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "steps_per_print": 10
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "steps_per_print": null
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    if "steps_per_print" not in context.values:
        return
    steps, key = context.values["steps_per_print"], context.config.top.block.keys["steps_per_print"]
    prints_unless_told = key.default is not None
    if (isinstance(steps, int | float) and steps != 0) or (steps is None and not prints_unless_told):
        return
    yield Finding(
        at=("steps_per_print",),
        message=f"steps_per_print must be a number other than 0, but is {what(steps)}",
        help="write a large number to print nothing" if prints_unless_told else "leave it out to print nothing",
        fix=_fix(steps, prints_unless_told),
    )


def _fix(steps: object, prints_unless_told: bool) -> Fix | None:
    at = ("steps_per_print",)
    if isinstance(steps, str):
        return without_quotes(at, steps) if number_in(steps) else None
    return removed(at) if steps == 0 and not prints_unless_told else None


RULE = Rule(
    code="DSA402",
    name="unusable-steps-per-print",
    summary="steps_per_print is 0 or no number",
    rationale=__doc__,
    when=When.FIRST_STEP,
    check=check,
    bad=BAD,
    good=GOOD,
)
