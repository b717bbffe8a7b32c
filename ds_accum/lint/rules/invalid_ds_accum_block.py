"""The `ds_accum` block holds a field or a value that the engine refuses.

DeepSpeed ignores the block, so a mistake in it would only show when `ds_accum.initialize` reads it on every rank.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import did_you_mean, dotted, shown

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
                message="ds_accum.normalization: input should be 'token' or 'micro_batch', but is \"tokens\"",
            ),
        ),
        deepspeed=None,
    ),
)

GOOD = (Example(config='{"train_batch_size": 8, "ds_accum": {"normalization": "token", "counting": {"shift": true}}}'),)


def check(context: LintContext) -> Iterator[Finding]:
    if "ds_accum" not in context.values or context.launch.engine == "stock":
        return
    from ds_accum.config.block import DSAccumBlock, read_block

    for path, sentence in read_block(context.values["ds_accum"])[1]:
        at = ("ds_accum", *path)
        if sentence.startswith("is "):
            meant = did_you_mean(str(path[-1]), DSAccumBlock.model_fields)
            yield Finding(
                at=at,
                on_key=True,
                message=f"{dotted(at)} {sentence}",
                help=f'did you mean "{meant}"?' if meant else "remove it",
            )
        else:
            yield Finding(
                at=at, message=f"{dotted(at)}: {sentence}, but is {shown(_value(context, at))}", help="change the value"
            )


def _value(context: LintContext, path: tuple[str | int, ...]) -> object:
    value: object = context.values
    for part in path:
        value = value[part] if isinstance(value, dict | list) else None  # type: ignore[index]
    return value


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
)
