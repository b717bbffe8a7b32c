"""`data_parallel_size` alone is not read.

DeepSpeed looks at it only together with `sequence_parallel_size`, to lay out a mesh of both. Alone it changes neither
the groups nor the batch: the data parallel size is the world size, or what the script's `mpu` says.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, RemoveKey
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import number, shown

_KEY = "data_parallel_size"

BAD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_clipping": 1.0,
  "data_parallel_size": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
        launch=Launch(world_size=2, client_optimizer=False),
        reports=(
            Report(
                at="data_parallel_size",
                message="data_parallel_size 1 is not read without sequence_parallel_size: data parallel is 2 (the world"
                " size)",
            ),
        ),
        fixed="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
        launch=Launch(world_size=2, client_optimizer=False),
    ),
    Example(
        config='{"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0, "data_parallel_size": 2}',
        launch=Launch(world_size=2),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    known = context.config.top.block.keys
    if _KEY not in context.values or _KEY not in known or "sequence_parallel_size" in context.values:
        return
    size, resolved = context.values[_KEY], context.batch.data_parallel
    if resolved.size is not None and size == resolved.size:
        return
    from ds_accum.lint.batch_words import data_parallel

    is_ = "" if resolved.size is None else f": {data_parallel(context).replace('parallel ', 'parallel is ', 1)}"
    yield Finding(
        at=(_KEY,),
        message=f"{_KEY} {number(size) if type(size) is int else shown(size)} is not read without"
        f" sequence_parallel_size{is_}",
        help="remove it; fewer data parallel ranks come from the script's mpu, or from a pipeline module",
        fix=Fix(f"remove {_KEY}", (RemoveKey((_KEY,)),), is_safe=True),
    )


RULE = Rule(
    code="DSA608",
    name="ignored-data-parallel-size",
    summary="data_parallel_size is not read without sequence_parallel_size",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
)
