"""A setting has a value that is none of those that DeepSpeed knows for it.

A ZeRO stage of 4, an offload device called "gpu", a communication type spelt "float16": each is refused when the engine
starts. Where the words of other tools differ ("float16" here, "fp16" there), only DeepSpeed's own are accepted.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.document import Path
from ds_accum.config.spelling import closest_word
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.fix import Fix
from ds_accum.lint.mends import removed, replaced
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.schema_errors import SchemaError, schema_errors
from ds_accum.lint.wording import dotted, one_of, shown

BAD = (
    Example(
        config='{"train_batch_size": 8, "zero_optimization": {"stage": 4}}',
        reports=(
            Report(at="zero_optimization.stage", message="zero_optimization.stage must be 0, 1, 2 or 3, but is 4"),
        ),
    ),
    Example(
        config='{"train_batch_size": 8, "communication_data_type": "float16"}',
        reports=(
            Report(
                at="communication_data_type",
                message='communication_data_type must be "fp16", "bf16" or "fp32", but is "float16"',
            ),
        ),
        fixed='{"train_batch_size": 8, "communication_data_type": "fp16"}',
    ),
)

GOOD = (
    Example(config='{"train_batch_size": 8, "zero_optimization": {"stage": 3}}'),
    Example(config='{"train_batch_size": 8, "communication_data_type": "BF16", "gradient_allreduce_op": "SUM"}'),
)

# Read by hand instead of through a model: the word is lowered before it is compared (get_communication_data_type,
# get_gradient_allreduce_op). Null means "decide by the precision" for the first two.
_READ_BY_HAND = ("communication_data_type", "seq_parallel_communication_data_type", "gradient_allreduce_op")


def check(context: LintContext) -> Iterator[Finding]:
    for error in schema_errors(context, "invalid-choice"):
        choices = error.key.choices if error.key is not None else ()
        yield Finding(
            at=error.path, message=_message(error), help=_help(error), fix=_fix(error.path, error.value, choices)
        )
    for name in _READ_BY_HAND:
        key = context.config.top.block.keys.get(name)
        if key is None or name not in context.values:
            continue
        value = context.values[name]
        if (isinstance(value, str) and value.lower() in key.choices) or (value is None and key.null):
            continue
        yield _refused((name,), value, key.choices)


def _message(error: SchemaError) -> str:
    if error.error.kind == "zenflow":
        return f"{dotted(error.path)}: {error.error.message}"
    choices = error.key.choices if error.key is not None else ()
    return f"{dotted(error.path)} must be {one_of(choices)}, but is {shown(error.value)}"


def _help(error: SchemaError) -> str:
    meant = closest_word(str(error.value), [str(choice) for choice in error.key.choices]) if error.key else None
    return f"did you mean {shown(meant)}?" if meant else "use one of these"


def _refused(path: Path, value: object, choices: tuple[object, ...]) -> Finding:
    return Finding(
        at=path,
        message=f"{dotted(path)} must be {one_of(choices)}, but is {shown(value)}",
        help="use one of these",
        fix=_fix(path, value, choices),
    )


# What other tools, and other settings of DeepSpeed, call the same things.
_OTHER_WORDS = {"float16": "fp16", "half": "fp16", "bfloat16": "bf16", "float32": "fp32", "float": "fp32"}


def _fix(path: Path, value: object, choices: tuple[object, ...]) -> Fix | None:
    if value is None:
        return removed(path)
    if not isinstance(value, str):
        return None
    word = value.strip().lower()
    same = next((choice for choice in choices if str(choice) in (word, _OTHER_WORDS.get(word))), None)
    if same is not None:
        return replaced(path, same)
    meant = closest_word(value, [str(choice) for choice in choices])
    similar = next((choice for choice in choices if str(choice) == meant), None)
    return replaced(path, similar, is_safe=False) if similar is not None else None


RULE = Rule(
    code="DSA013",
    name="invalid-choice",
    summary="a setting has a value that is none of those that DeepSpeed knows",
    rationale=__doc__,
    when=When.LOAD,
    check=check,
    bad=BAD,
    good=GOOD,
)
