"""The file suppresses something that is no rule.

A misspelt code suppresses nothing, and its author goes on to believe that the finding was looked at. A suppression
names one rule by its full code: a prefix would hide rules that do not exist yet, for a reason that nobody has thought
of for them. For whole groups there is `per-file-ignores` in the settings file.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, Severity, When
from ds_accum.lint.fix import Fix, RenameKey
from ds_accum.lint.inline import IGNORE
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "ds_accum": {"lint": {"ignore": {"indivisible-batch-size": "the launcher rounds it", "DSA4": "the script clips"}}}
}
""",
        reports=(
            Report(
                at="ds_accum.lint.ignore.indivisible-batch-size",
                message='"indivisible-batch-size" is no code of a rule, so nothing is suppressed',
            ),
            Report(
                at="ds_accum.lint.ignore.DSA4",
                message='"DSA4" is no code of a rule, so nothing is suppressed',
            ),
        ),
        deepspeed=None,
        fixed="""{
  "train_batch_size": 8,
  "ds_accum": {"lint": {"ignore": {"DSA102": "the launcher rounds it", "DSA4": "the script clips"}}}
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
    from ds_accum.lint.selection import closest_code  # with all it needs, which is nothing that most files need

    review = context.review
    if review is None:
        return
    codes = {rule.code for rule in review.known}
    for word in review.ignored:
        if word in codes:
            continue
        at = (*IGNORE, word)
        meant = closest_code(word, review.known)
        yield Finding(
            at=at,
            on_key=True,
            message=f"{shown(word)} is no code of a rule, so nothing is suppressed",
            help=f'did you mean "{meant}"?' if meant else "name each rule by its full code, such as DSA101",
            fix=None
            if meant is None or meant in review.ignored
            else Fix(title=f"suppress {meant}", changes=(RenameKey(at, meant),), is_safe=True),
        )


RULE = Rule(
    code="DSA021",
    name="unknown-suppression",
    summary="the file suppresses something that is no rule",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    proof=Proof.OTHER_READER,
    needs="review",
    check=check,
    bad=BAD,
    good=GOOD,
)
