"""A block that DeepSpeed validates holds a key that it does not know.

`zero_optimization`, `fp16`, `bf16` and the other validated blocks refuse unknown keys: a misspelt one, one of another
block, one that this release does not know yet or any more. The root and the blocks that are plain dictionaries ignore
them silently instead, which is another rule's business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ds_accum.config.schema import format_version, last_change
from ds_accum.config.spelling import closest_word
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.fix import Fix
from ds_accum.lint.mends import moved, removed, renamed
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.schema_errors import SchemaError, schema_errors
from ds_accum.lint.wording import dotted

BAD = (
    Example(
        config='{\n  "train_batch_size": 8,\n  "zero_optimization": {"stage": 2, "overlap_com": true}\n}\n',
        reports=(
            Report(
                at="zero_optimization.overlap_com",
                message='zero_optimization has no key "overlap_com", and DeepSpeed refuses a key that it does not know'
                " here",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "zero_optimization": {"stage": 2, "overlap_comm": true}
}
""",
    ),
    Example(
        config='{"train_batch_size": 8, "zero_optimization": {"stage": 2, "gradient_clipping": 1.0}}',
        reports=(
            Report(
                at="zero_optimization.gradient_clipping",
                message='zero_optimization has no key "gradient_clipping", and DeepSpeed refuses a key that it does not'
                " know here",
            ),
        ),
        fixed='{"train_batch_size": 8, "zero_optimization": {"stage": 2}, "gradient_clipping": 1.0}',
    ),
    # GPT-NeoX's configs say it twice.
    Example(
        config='{"train_batch_size": 8, "fp16": {"fp16": true, "enabled": true, "loss_scale": 0}}',
        reports=(
            Report(
                at="fp16.fp16",
                message='fp16 has no key "fp16", and DeepSpeed refuses a key that it does not know here',
            ),
        ),
        fixed='{"train_batch_size": 8, "fp16": {"enabled": true, "loss_scale": 0}}',
    ),
)

GOOD = (
    Example(config='{"train_batch_size": 8, "zero_optimization": {"stage": 2, "overlap_comm": true}}'),
    # DeepSpeed drops every key whose value is "auto" before it looks at the names.
    Example(config='{"train_batch_size": 8, "zero_optimization": {"stage": 2, "my_overlap": "auto"}}'),
)


def check(context: LintContext) -> Iterator[Finding]:
    for error in schema_errors(context, "unknown-key"):
        if error.key is not None and error.key.name_in_model == error.path[-1]:
            yield Finding(
                at=error.path,
                on_key=True,
                message=f'{_block(error)} holds both "{error.key.name_in_model}" and "{error.key.name}", which are the'
                " same setting",
                help="keep one of the two",
            )
        else:
            yield Finding(
                at=error.path,
                on_key=True,
                message=_message(context, error),
                help=_help(context, error),
                fix=_fix(context, error),
            )


def _block(error: SchemaError) -> str:
    return dotted(error.path[:-1])


def _message(context: LintContext, error: SchemaError) -> str:
    key = str(error.path[-1])
    change = last_change(error.block.name, key)
    release = f"DeepSpeed {format_version(context.version)}"
    if change is not None and change.added and change.version > context.version:
        return f'{_block(error)} has no key "{key}" in {release}: it came with {format_version(change.version)}'
    if change is not None and change.removed and change.version <= context.version:
        return f'{_block(error)} has no key "{key}" any more: DeepSpeed {format_version(change.version)} removed it'
    return f'{_block(error)} has no key "{key}", and DeepSpeed refuses a key that it does not know here'


def _help(context: LintContext, error: SchemaError) -> str:
    key = str(error.path[-1])
    if _is_a_second_switch(error):
        return 'remove it: the switch of the block is "enabled"'
    meant = closest_word(key, error.block.keys)
    if meant is not None:
        return f'did you mean "{meant}"?'
    elsewhere = [block.name for block in context.config.schema.blocks.values() if key in block.keys]
    if "" in elsewhere:
        return f'"{key}" belongs to the root of the config: move it out of {_block(error)}'
    if elsewhere:
        return f'"{key}" is a key of {", ".join(elsewhere)}: move it there, or remove it'
    return "remove it"


def _fix(context: LintContext, error: SchemaError) -> Fix | None:
    key, root, siblings = str(error.path[-1]), context.config.top, context.siblings(error.path)
    if _is_a_second_switch(error):
        return removed(error.path) if _holds(siblings, "enabled", error.value) else None
    meant = closest_word(key, error.block.keys)
    if meant is not None:
        return renamed(error.path, meant, beside=siblings)
    if key in root.block.keys:
        return moved(error.path, (key,)) if key not in context.values else None
    return removed(error.path, is_safe=False)


def _is_a_second_switch(error: SchemaError) -> bool:
    """`"fp16": {"fp16": true, "enabled": true}`, as GPT-NeoX writes it."""
    return error.path[-1:] == error.path[-2:-1] and isinstance(error.value, bool)


def _holds(values: Any, key: str, value: bool) -> bool:
    return isinstance(values, Mapping) and values.get(key) is value


RULE = Rule(
    code="DSA701",
    name="unknown-key",
    summary="a validated block holds a key that DeepSpeed does not know",
    rationale=__doc__,
    when=When.LOAD,
    check=check,
    bad=BAD,
    good=GOOD,
)
