"""The file suppresses a rule that finds nothing in it.

A suppression outlives its reason: the setting was mended, or the rule learnt to tell. Left in place it hides the next
mistake of the same kind, with a reason that was meant for another one.

A rule that was not asked in this run is not called unused; nor is any rule in a file that can't be read. Whether a
finding is there may depend on the launch, so this is no more than a hint.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, Severity, When
from ds_accum.lint.fix import Fix, RemoveKey
from ds_accum.lint.inline import IGNORE
from ds_accum.lint.rule import Example, Report, Rule

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "ds_accum": {"lint": {"ignore": {"DSA102": "the launcher rounds it"}}}
}
""",
        reports=(
            Report(
                at="ds_accum.lint.ignore.DSA102",
                message="DSA102 (indivisible-batch-size) is suppressed here, but finds nothing for this launch",
            ),
        ),
        deepspeed=None,
        fixed="""{
  "train_batch_size": 8,
  "ds_accum": {"lint": {"ignore": {}}}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 100,
  "ds_accum": {"lint": {"ignore": {"DSA102": "the launcher rounds it"}}}
}
""",
        launch=Launch(world_size=8),
        deepspeed=None,
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    review = context.review
    if review is None or context.document.problems:
        return
    own = {rule.code for rule in review.known if rule.needs == "review"}
    for rule in review.known:
        if rule.code in review.ignored.keys() & review.asked - review.found - own:
            at = (*IGNORE, rule.code)
            yield Finding(
                at=at,
                on_key=True,
                message=f"{rule.code} ({rule.name}) is suppressed here, but finds nothing for this launch",
                help="remove the suppression",
                fix=Fix(title=f"remove the suppression of {rule.code}", changes=(RemoveKey(at),), is_safe=True),
            )


RULE = Rule(
    code="DSA020",
    name="unused-suppression",
    summary="the file suppresses a rule that finds nothing in it",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.INFO,
    proof=Proof.OTHER_READER,
    needs="review",
    check=check,
    bad=BAD,
    good=GOOD,
)
