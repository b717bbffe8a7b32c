"""The config clips, and what Lightning's Trainer is told of clipping does not count.

Lightning writes `gradient_clip_val` into the config where that has no `gradient_clipping`, and 0, which is off, where
Trainer is told nothing. A value that is there it leaves, without a word.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, Severity, When
from ds_accum.lint.fix import Fix, RemoveKey
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

_KEY = "gradient_clipping"

BAD = (
    Example(
        config='{"train_micro_batch_size_per_gpu": 16, "gradient_clipping": 0.5}',
        launch=Launch(framework="lightning"),
        reports=(
            Report(
                at="gradient_clipping",
                message="gradient_clipping 0.5 counts, whatever gradient_clip_val Lightning's Trainer is given",
            ),
        ),
        deepspeed=None,
        fixed='{"train_micro_batch_size_per_gpu": 16}',
    ),
)

GOOD = (Example(config='{"train_micro_batch_size_per_gpu": 16}', launch=Launch(framework="lightning"), deepspeed=None),)


def check(context: LintContext) -> Iterator[Finding]:
    if context.launch.framework == "lightning" and _KEY in context.values:
        yield Finding(
            at=(_KEY,),
            message=f"{_KEY} {shown(context.values[_KEY])} counts, whatever gradient_clip_val Lightning's Trainer is"
            " given",
            help="remove it to have one place for clipping",
            fix=Fix(title=f"remove {_KEY}", changes=(RemoveKey((_KEY,)),), is_safe=False),
        )


RULE = Rule(
    code="DSA821",
    name="clipping-in-lightning-config",
    summary="the config's clipping takes the place of Lightning's gradient_clip_val",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.INFO,
    proof=Proof.READ,
    check=check,
    bad=BAD,
    good=GOOD,
)
