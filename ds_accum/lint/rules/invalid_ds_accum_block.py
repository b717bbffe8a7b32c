"""The `ds_accum` block holds a field or a value that the engine refuses.

DeepSpeed ignores the block, so a mistake in it would only show when `ds_accum.initialize` reads it on every rank; one
in its `lint` part would leave the linter without the setting, such as a suppression that gives no reason.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.paths import value_at
from ds_accum.config.spelling import closest_word
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, Severity, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import dotted, shown

BAD = (
    Example(
        config='{"train_batch_size": 8, "ds_accum": {"normalisation": "token"}}',
        reports=(
            Report(at="ds_accum.normalisation", message="ds_accum.normalisation is no field of the ds_accum block"),
        ),
        deepspeed=None,
    ),
    Example(
        config='{"train_batch_size": 8, "ds_accum": {"normalization": "tokens"}}',
        reports=(
            Report(
                at="ds_accum.normalization",
                message="ds_accum.normalization must be 'token' or 'micro_batch', but is \"tokens\"",
            ),
        ),
        deepspeed=None,
    ),
    Example(
        config='{"train_batch_size": 8, "ds_accum": {"lint": {"ignore": {"DSA101": " "}}}}',
        reports=(
            Report(
                at="ds_accum.lint.ignore.DSA101",
                message='ds_accum.lint.ignore.DSA101 must say why the rule does not apply here, but is " "',
            ),
        ),
        deepspeed=None,
    ),
)

GOOD = (Example(config='{"train_batch_size": 8, "ds_accum": {"normalization": "token", "counting": {"shift": true}}}'),)


_HOW_TO_IGNORE = 'write each code with the reason: {"DSA101": "the launcher pads it"}'


def check(context: LintContext) -> Iterator[Finding]:
    if "ds_accum" not in context.values:
        return
    from ds_accum.config.block import DSAccumBlock, LintSettings, read_block

    for path, sentence in read_block(context.values["ds_accum"])[1]:
        # What only our engine reads is nobody's mistake where DeepSpeed's own runs.
        if context.engine == "stock" and path[:1] != ("lint",):
            continue
        severity, when = (None, None) if context.engine == "ds-accum" else (Severity.WARNING, When.NEVER)
        at = ("ds_accum", *path)
        if sentence.startswith("is "):
            fields = (LintSettings if path[:-1] == ("lint",) else DSAccumBlock).model_fields
            meant = closest_word(str(path[-1]), fields)
            yield Finding(
                at=at,
                on_key=True,
                message=f"{dotted(at)} {sentence}",
                help=f'did you mean "{meant}"?' if meant else "remove it",
                severity=severity,
                when=when,
            )
        else:
            yield Finding(
                at=at,
                message=f"{dotted(at)} {sentence}, but is {shown(value_at(context.values, at))}",
                help=_HOW_TO_IGNORE if path[:2] == ("lint", "ignore") else None,
                severity=severity,
                when=when,
            )


RULE = Rule(
    code="DSA251",
    name="invalid-ds-accum-block",
    summary="the ds_accum block holds a field or a value that the engine refuses",
    rationale=__doc__,
    when=When.START,
    check=check,
    proof=Proof.OTHER_READER,
    bad=BAD,
    good=GOOD,
    noticed_by="ds_accum.initialize",
)
