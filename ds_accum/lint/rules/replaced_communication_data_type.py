"""Under sequence parallelism `communication_data_type` is replaced.

As soon as there are sequence parallel groups the engine overwrites it with `seq_parallel_communication_data_type`, in
which all gradients are then reduced. That one is fp32 unless given, and the model's own type with NCCL 2.27.3 and
newer.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, RenameKey
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

_KEY = "communication_data_type"
_REPLACEMENT = "seq_parallel_communication_data_type"

BAD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_clipping": 1.0,
  "bf16": {"enabled": true},
  "data_types": {"grad_accum_dtype": "bf16"},
  "data_parallel_size": 1,
  "sequence_parallel_size": 2,
  "communication_data_type": "bf16",
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
        launch=Launch(world_size=2, client_optimizer=False),
        reports=(
            Report(
                at="communication_data_type",
                message='communication_data_type "bf16" is replaced by seq_parallel_communication_data_type "fp32" (the'
                " default) under sequence parallelism",
            ),
        ),
        fixed="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_clipping": 1.0,
  "bf16": {"enabled": true},
  "data_types": {"grad_accum_dtype": "bf16"},
  "data_parallel_size": 1,
  "sequence_parallel_size": 2,
  "seq_parallel_communication_data_type": "bf16",
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
  "bf16": {"enabled": true},
  "data_types": {"grad_accum_dtype": "bf16"},
  "communication_data_type": "bf16",
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
        launch=Launch(world_size=2, client_optimizer=False),
    ),
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_clipping": 1.0,
  "communication_data_type": "fp32",
  "seq_parallel_communication_data_type": "fp32"
}
""",
        launch=Launch(world_size=8, sequence_parallel_size=2),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    top = context.config.top
    given, replacement = top.get(_KEY), top.get(_REPLACEMENT)
    if not top.written(_KEY) or not isinstance(given, str) or not isinstance(replacement, str):
        return
    if given.lower() == replacement.lower() or not _has_sequence_groups(context):
        return
    origin = context.line(_REPLACEMENT) if top.written(_REPLACEMENT) else "the default"
    yield Finding(
        at=(_KEY,),
        message=f"{_KEY} {shown(given)} is replaced by {_REPLACEMENT} {shown(replacement)} ({origin}) under sequence"
        " parallelism",
        help=f"write {_REPLACEMENT}",
        fix=None if top.written(_REPLACEMENT) else Fix(f"call it {_REPLACEMENT}", (RenameKey((_KEY,), _REPLACEMENT),)),
    )


def _has_sequence_groups(context: LintContext) -> bool:
    if context.launch.model_parallel_size > 1:
        return context.launch.sequence_parallel_size > 1
    known, size = context.config.top.block.keys, context.values.get("sequence_parallel_size")
    both = "data_parallel_size" in context.values and {"data_parallel_size", "sequence_parallel_size"} <= known.keys()
    return both and type(size) is int and size > 1


RULE = Rule(
    code="DSA610",
    name="replaced-communication-data-type",
    summary="communication_data_type is replaced under sequence parallelism",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
)
