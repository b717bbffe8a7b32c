"""The clipping threshold is a number that DeepSpeed reads in another way than it looks.

DeepSpeed clips if the threshold is greater than 0, and asks nothing else. A negative one and NaN switch clipping off,
without a word, and `true` is the threshold 1.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

KEY = "gradient_clipping"

BAD = (
    Example(
        config="""{
  "train_batch_size": 2,
  "gradient_clipping": -1.0,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}}
}
""",
        reports=(
            Report(at="gradient_clipping", message="gradient_clipping is -1, and DeepSpeed does not clip gradients"),
        ),
        fixed="""{
  "train_batch_size": 2,
  "gradient_clipping": 0.0,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}}
}
""",
    ),
    Example(
        config='{"train_batch_size": 8, "gradient_clipping": true}',
        launch=Launch(world_size=1),
        reports=(
            Report(
                at="gradient_clipping", message="gradient_clipping is true, and DeepSpeed clips gradients to norm 1"
            ),
        ),
        fixed='{"train_batch_size": 8, "gradient_clipping": 1.0}',
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 2,
  "gradient_clipping": 0.01,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}}
}
"""
    ),
    Example(config='{"train_batch_size": 8, "gradient_clipping": 0}'),
    Example(config='{"train_batch_size": 8, "gradient_clipping": false}'),
)


def check(context: LintContext) -> Iterator[Finding]:
    clipping = context.values.get(KEY)
    if not isinstance(clipping, int | float) or (clipping >= 0 and clipping is not True):
        return
    is_on = clipping is True
    value = 1.0 if is_on else 0.0
    yield Finding(
        at=(KEY,),
        message=f"{KEY} is {shown(clipping)}, and DeepSpeed {'clips gradients to norm 1' if is_on else 'does not clip'}"
        f"{'' if is_on else ' gradients'}",
        help="write the norm to clip to" if is_on else "write 0 for no clipping, else the norm to clip to",
        fix=Fix(title=f"write {value}", changes=(SetValue((KEY,), value),), is_safe=True),
    )


RULE = Rule(
    code="DSA405",
    name="odd-gradient-clipping",
    summary="gradient_clipping is negative or a boolean",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
)
