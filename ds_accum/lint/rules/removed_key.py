"""A setting that DeepSpeed has removed, and refuses to find in a config.

Since 0.19.8 eleven formerly legal blocks, among them `elasticity`, `amp`, `compression_training` and
`curriculum_learning`, stop the engine from starting, even when they say `"enabled": false`: DeepSpeed would rather
fail than ignore what used to change the training. The same holds for a few keys of `zero_optimization`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from ds_accum.config.launch import Launch
from ds_accum.config.paths import value_at
from ds_accum.config.schema import Change, format_version, history
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.mends import removed
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import dotted

BAD = (
    Example(
        config='{\n  "train_batch_size": 8,\n  "elasticity": {"enabled": false}\n}\n',
        reports=(
            Report(at="elasticity", message="elasticity was removed in DeepSpeed 0.19.8, which refuses to find it"),
        ),
        fixed="""{
  "train_batch_size": 8
}
""",
    ),
)

GOOD = (
    Example(
        config='{"train_batch_size": 8, "elasticity": {"enabled": false}}',
        launch=Launch(world_size=1, deepspeed_version=(0, 19, 5)),
        deepspeed=None,
    ),
    Example(config='{"train_batch_size": 8}'),
)


def check(context: LintContext) -> Iterator[Finding]:
    unknown = {(block, key) for block in ("", "zero_optimization") for key in _unknown_keys(context, block)}
    for change in _refused_changes() if unknown else ():
        if change.version > context.version or (change.block, change.key) not in unknown:
            continue
        path = (change.block, change.key) if change.block else (change.key,)
        yield Finding(
            at=path,
            on_key=True,
            message=f"{dotted(path)} was removed in DeepSpeed {format_version(change.version)}, which refuses to find"
            " it",
            help=f"remove it: {change.reason}" if change.reason else "remove it",
            fix=removed(path, is_safe=_is_switched_off(context, path)),
        )


def _unknown_keys(context: LintContext, block: str) -> set[str]:
    """The keys that the release does not read: only among them can one be that it refuses to find."""
    reading = context.block(block)
    return reading.raw.keys() - reading.block.keys if reading.present and reading.is_mapping else set()


def _is_switched_off(context: LintContext, path: tuple[str, ...]) -> bool:
    """Whether it asks for nothing: false, null, or a block that is empty or not enabled."""
    value = value_at(context.values, path)
    return not (value.get("enabled", bool(value)) if isinstance(value, Mapping) else value)


@lru_cache(maxsize=1)
def _refused_changes() -> tuple[Change, ...]:
    return tuple(change for change in history() if change.refused)


RULE = Rule(
    code="DSA702",
    name="removed-key",
    summary="a setting that DeepSpeed has removed and refuses to find",
    rationale=__doc__,
    when=When.LOAD,
    check=check,
    bad=BAD,
    good=GOOD,
)
