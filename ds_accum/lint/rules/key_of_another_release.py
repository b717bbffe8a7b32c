"""A key is one that another DeepSpeed release reads, and this one ignores.

Settings come, change their names and go. The root of the config and the blocks that are plain dictionaries ignore a
key that is gone, or not there yet, like any other that they do not know: `seq_parallel_comm_data_type` has had no
effect since 0.16.5 gave it a longer name, and a file that was written for a later release runs on an earlier one
without what it asks for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.config.schema import Change, format_version, known_versions
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, RemoveKey, RenameKey
from ds_accum.lint.ignored_keys import IgnoredKey, Kind, ignored_keys
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import dotted, shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "seq_parallel_comm_data_type": "bf16",
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
        reports=(
            Report(
                at="seq_parallel_comm_data_type",
                message='DeepSpeed ignores "seq_parallel_comm_data_type" since 0.16.5',
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "seq_parallel_communication_data_type": "bf16",
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
    ),
    Example(
        config='{"train_batch_size": 8, "fp32_allreduce": true}',
        reports=(
            Report(
                at="fp32_allreduce",
                message='DeepSpeed ignores "fp32_allreduce", which it dropped before 0.14.0 for'
                " communication_data_type",
            ),
        ),
        fixed='{"train_batch_size": 8}',
    ),
    Example(
        config='{"train_batch_size": 8, "managed_gradient_accumulation": false}',
        launch=Launch(world_size=1, deepspeed_version=(0, 19, 2)),
        reports=(
            Report(
                at="managed_gradient_accumulation",
                message='DeepSpeed 0.19.2 ignores "managed_gradient_accumulation", which came with 0.19.4',
            ),
        ),
        deepspeed=None,
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "seq_parallel_communication_data_type": "bf16",
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
"""
    ),
    Example(
        config='{"train_batch_size": 8, "seq_parallel_comm_data_type": "bf16"}',
        launch=Launch(world_size=1, deepspeed_version=(0, 16, 4)),
        deepspeed=None,
    ),
)

_RENAMED = re.compile(r"renamed to (\w+)")


def check(context: LintContext) -> Iterator[Finding]:
    for ignored in ignored_keys(context):
        if ignored.kind is Kind.OTHER_RELEASE:
            yield _dropped_long_ago(ignored) if ignored.change is None else _changed(context, ignored, ignored.change)


def _changed(context: LintContext, ignored: IgnoredKey, change: Change) -> Finding:
    key, since = shown(str(ignored.path[-1])), format_version(change.version)
    if change.version > context.version:
        return Finding(
            at=ignored.path,
            on_key=True,
            message=f"DeepSpeed {format_version(context.version)} ignores {key}, which came with {since}",
            help="remove it, or train with a later release",
        )
    renamed = _RENAMED.search(change.reason or "")
    return Finding(
        at=ignored.path,
        on_key=True,
        message=f"DeepSpeed ignores {key} since {since}",
        help=f'write "{renamed[1]}", as it is called now' if renamed else change.reason or "remove it",
        fix=Fix(title=f"rename it to {renamed[1]}", changes=(RenameKey(ignored.path, renamed[1]),))
        if renamed
        else Fix(title="remove it", changes=(RemoveKey(ignored.path),), is_safe=True),
    )


def _dropped_long_ago(ignored: IgnoredKey) -> Finding:
    assert ignored.meant is not None
    oldest = format_version(known_versions()[0])
    return Finding(
        at=ignored.path,
        on_key=True,
        severity=None if ignored.value else Severity.INFO,
        message=f"DeepSpeed ignores {shown(str(ignored.path[-1]))}, which it dropped before {oldest} for"
        f" {dotted(ignored.meant)}",
        help=f'write "{dotted(ignored.meant)}": "fp32" for what it did, or remove it',
        fix=Fix(title="remove it", changes=(RemoveKey(ignored.path),), is_safe=True),
    )


RULE = Rule(
    code="DSA706",
    name="key-of-another-release",
    summary="DeepSpeed ignores a key that another of its releases reads",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
)
