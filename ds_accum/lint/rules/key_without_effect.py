"""DeepSpeed reads a key and never uses it.

`allgather_partitions` and `disable_allgather` date from ZeRO's first releases. The config still has them, in many
templates they are copied from file to file, and since 0.14.0 at the latest nothing in the engine asks for their
values: parameters are gathered in any case. What used to be tuned with them is `allgather_bucket_size`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.document import Path
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, Severity, When
from ds_accum.lint.fix import Fix, RemoveKey
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import dotted

BAD = (
    Example(
        config='{"train_batch_size": 8, "zero_optimization": {"stage": 2, "allgather_partitions": false}}',
        reports=(
            Report(
                at="zero_optimization.allgather_partitions",
                message="zero_optimization.allgather_partitions has no effect: DeepSpeed reads it and never uses it",
            ),
        ),
        fixed='{"train_batch_size": 8, "zero_optimization": {"stage": 2}}',
    ),
    Example(
        config='{"train_batch_size": 8, "disable_allgather": true}',
        reports=(
            Report(
                at="disable_allgather",
                message="disable_allgather has no effect: DeepSpeed reads it and never uses it",
            ),
        ),
        fixed='{"train_batch_size": 8}',
    ),
)

GOOD = (
    Example(config='{"train_batch_size": 8, "zero_optimization": {"stage": 2, "allgather_bucket_size": 200000000}}'),
    Example(config='{"train_batch_size": 8, "zero_optimization": {"stage": 2, "allgather_partitions": true}}'),
)

# With what they are anyway; who writes that down asks for nothing.
_UNUSED: tuple[tuple[Path, bool], ...] = (
    (("zero_optimization", "allgather_partitions"), True),
    (("disable_allgather",), False),
)


def check(context: LintContext) -> Iterator[Finding]:
    for path, default in _UNUSED:
        holder = context.values if len(path) == 1 else context.values.get(str(path[0]))
        if isinstance(holder, dict) and holder.get(path[-1], default) is not default:
            yield Finding(
                at=path,
                on_key=True,
                message=f"{dotted(path)} has no effect: DeepSpeed reads it and never uses it",
                help="remove it",
                fix=Fix(title="remove it", changes=(RemoveKey(path),), is_safe=True),
            )


RULE = Rule(
    code="DSA710",
    name="key-without-effect",
    summary="DeepSpeed reads a key and never uses it",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.INFO,
    proof=Proof.READ,
    check=check,
    bad=BAD,
    good=GOOD,
)
