"""`steps_per_print` is negative, and DeepSpeed prints after every so many steps all the same.

DeepSpeed prints where `step % steps_per_print` is 0. For -1, often meant as "never", it is 0 after every step, and
-10 is the same as 10. Since 0.15.2 nothing is printed where the key is left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, RemoveKey
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import number

KEY = "steps_per_print"

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "steps_per_print": -1,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
        reports=(Report(at="steps_per_print", message="steps_per_print is -1, and DeepSpeed prints after every step"),),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
    ),
)

GOOD = (
    Example(config='{"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}'),
    Example(config='{"train_batch_size": 8, "steps_per_print": 10}'),
)


def check(context: LintContext) -> Iterator[Finding]:
    steps = context.values.get(KEY)
    # Of an infinite number no step is a multiple.
    if not isinstance(steps, int | float) or not -1e18 < steps < 0:
        return
    prints_unless_told = context.config.top.block.keys[KEY].default is not None
    every = "every step" if steps == -1 else f"every {number(-steps)} steps"
    yield Finding(
        at=(KEY,),
        message=f"{KEY} is {number(steps)}, and DeepSpeed prints after {every}",
        help="write a large number to print nothing" if prints_unless_told else "leave it out to print nothing",
        fix=None if prints_unless_told else Fix(title="remove it", changes=(RemoveKey((KEY,)),), is_safe=True),
    )


RULE = Rule(
    code="DSA407",
    name="negative-steps-per-print",
    summary="a negative steps_per_print, which does not mean never",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
)
