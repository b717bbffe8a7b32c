"""The mesh of the config keeps the gradients of sequence parallel ranks apart.

With `data_parallel_size` and `sequence_parallel_size` in the config DeepSpeed lays out a mesh of both, and takes its
data parallel dimension for the group that gradients are reduced over. The ranks of one sequence never exchange theirs:
each multiplies its own by `sequence_parallel_size` and steps alone, and the copies of the model drift apart from the
first update on. Only ZeRO-3, which shards over all ranks, adds them up. An `mpu` of the script's brings a group of
both.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import zero_stage

_SIZES = ("data_parallel_size", "sequence_parallel_size")

BAD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_clipping": 0.0,
  "data_parallel_size": 1,
  "sequence_parallel_size": 2,
  "zero_allow_untested_optimizer": true,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}}
}
""",
        launch=Launch(world_size=2, client_optimizer=False),
        reports=(
            Report(
                at="sequence_parallel_size",
                message="the 2 ranks of a sequence (line 5) do not exchange gradients at ZeRO stage 0 (the default):"
                " the mesh of the config reduces them over data_parallel_size 1 (line 4) alone, unless the script"
                " passes an mpu",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_clipping": 0.0,
  "data_parallel_size": 2,
  "sequence_parallel_size": 1,
  "zero_allow_untested_optimizer": true,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}}
}
""",
        launch=Launch(world_size=2, client_optimizer=False),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    known = context.config.top.block.keys
    if not all(key in context.values and key in known for key in _SIZES) or context.config.zero_stage not in (0, 1, 2):
        return
    data, sequence = (context.values[key] for key in _SIZES)
    if type(data) is not int or type(sequence) is not int or data < 1 or sequence < 2:
        return
    if context.launch.model_parallel_size > 1 or context.launch.world_size not in (None, data * sequence):
        return
    yield Finding(
        at=("sequence_parallel_size",),
        message=f"the {sequence} ranks of a sequence ({context.line('sequence_parallel_size')}) do not exchange"
        f" gradients at {zero_stage(context)}: the mesh of the config reduces them over data_parallel_size {data}"
        f" ({context.line('data_parallel_size')}) alone",
        help="pass an mpu with sequence parallel groups to deepspeed.initialize and remove both keys, or use ZeRO"
        " stage 3",
        depends_on="unless the script passes an mpu",
    )


RULE = Rule(
    code="DSA607",
    name="mesh-without-gradient-exchange",
    summary="the ranks of a sequence do not exchange gradients below ZeRO stage 3",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
)
