"""A block of settings is something else than an object.

`"fp16": true` looks like a switch, but DeepSpeed unpacks the block and fails with "argument after ** must be a
mapping", or asks it for `.get` and fails with an `AttributeError`; neither names the key. `null` is no way to leave a
block out either, except where DeepSpeed says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.schema_errors import schema_errors
from ds_accum.lint.wording import dotted, what

BAD = (
    Example(
        config='{"train_batch_size": 8, "fp16": true}',
        reports=(Report(at="fp16", message="fp16 must be an object of settings, but is the boolean true"),),
    ),
    Example(
        config='{"train_batch_size": 8, "zero_optimization": null}',
        reports=(
            Report(at="zero_optimization", message="zero_optimization must be an object of settings, but is null"),
        ),
    ),
    Example(
        config='{"train_batch_size": 8, "zero_optimization": {"stage": 2, "offload_optimizer": "cpu"}}',
        reports=(
            Report(
                at="zero_optimization.offload_optimizer",
                message='zero_optimization.offload_optimizer must be an object of settings, but is the string "cpu"',
            ),
        ),
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
            yield _finding(reading.path, reading.raw)
    for error in schema_errors(context, "block-not-an-object"):
        yield _finding(error.path, error.value)


def _is_read_anyway(name: str, value: Any) -> bool:
    """Where DeepSpeed's way of asking happens to get by with something else than an object."""
    if name == "expert_parallel":
        return not value
    if name == "timers":
        return isinstance(value, str | list) and "throughput" not in value
    return False


def _finding(path: tuple[str | int, ...], value: Any) -> Finding:
    message = f"{dotted(path)} must be an object of settings, but is {what(value)}"
    return Finding(at=path, message=message, help=_help(value))


def _help(value: Any) -> str:
    if value is None or value is False:
        return "leave the block out"
    return 'write { "enabled": true } or the settings that you mean' if value is True else "write an object { ... }"


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
