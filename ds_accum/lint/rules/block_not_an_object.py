"""A block of settings is something else than an object.

`"fp16": true` looks like a switch, but DeepSpeed unpacks the block and fails with "argument after ** must be a
mapping", or asks it for `.get` and fails with an `AttributeError`; neither names the key. `null` is no way to leave a
block out either, except where DeepSpeed says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ds_accum.config.document import Path
from ds_accum.config.schema import Block
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.fix import Fix
from ds_accum.lint.mends import removed, replaced
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.schema_errors import schema_errors
from ds_accum.lint.wording import dotted, what

BAD = (
    Example(
        config='{"train_batch_size": 8, "fp16": true}',
        reports=(Report(at="fp16", message="fp16 must be an object of settings, but is the boolean true"),),
        fixed='{"train_batch_size": 8, "fp16": {"enabled": true}}',
    ),
    Example(
        config='{"train_batch_size": 8, "zero_optimization": null}',
        reports=(
            Report(at="zero_optimization", message="zero_optimization must be an object of settings, but is null"),
        ),
        fixed='{"train_batch_size": 8}',
    ),
    Example(
        config='{"train_batch_size": 8, "zero_optimization": {"stage": 2, "offload_optimizer": "cpu"}}',
        reports=(
            Report(
                at="zero_optimization.offload_optimizer",
                message='zero_optimization.offload_optimizer must be an object of settings, but is the string "cpu"',
            ),
        ),
        fixed='{"train_batch_size": 8, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    ),
)

GOOD = (
    Example(config='{"train_batch_size": 8, "fp16": {"enabled": true}, "zero_optimization": true}'),
    Example(
        config='{"train_batch_size": 8, "zero_optimization": {"stage": 2, "offload_optimizer": null}, "aio": null}'
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    for reading in context.config.present():
        if reading.is_mapping or context.config.schema.is_in_a_model(reading.block):
            continue
        if not _is_read_anyway(reading.block.name, reading.raw):
            yield _finding(reading.path, reading.raw, reading.block)
    for error in schema_errors(context, "block-not-an-object"):
        block = error.key.block if error.key is not None else None
        yield _finding(error.path, error.value, context.config.schema.block(block) if block is not None else None)


def _is_read_anyway(name: str, value: Any) -> bool:
    """Where DeepSpeed's way of asking happens to get by with something else than an object."""
    if name == "expert_parallel":
        return not value
    if name == "timers":
        return isinstance(value, str | list) and "throughput" not in value
    return False


def _finding(path: Path, value: Any, block: Block | None) -> Finding:
    message = f"{dotted(path)} must be an object of settings, but is {what(value)}"
    return Finding(at=path, message=message, help=_help(value), fix=_fix(path, value, block))


def _help(value: Any) -> str:
    if value is None or value is False:
        return "leave the block out"
    return 'write { "enabled": true } or the settings that you mean' if value is True else "write an object { ... }"


def _fix(path: Path, value: Any, block: Block | None) -> Fix | None:
    if value is None or value is False:
        return removed(path)
    keys = block.keys if block is not None else {}
    if value is True and "enabled" in keys:
        return replaced(path, {"enabled": True})
    if "device" in keys and value in keys["device"].choices:
        return replaced(path, {"device": value})
    if "stage" in keys and isinstance(value, int) and not isinstance(value, bool) and value in (0, 1, 2, 3):
        return replaced(path, {"stage": value})
    return None


RULE = Rule(
    code="DSA010",
    name="block-not-an-object",
    summary="a block of settings is something else than an object",
    rationale=__doc__,
    when=When.LOAD,
    check=check,
    bad=BAD,
    good=GOOD,
)
