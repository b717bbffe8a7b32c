"""Sequence parallel ranks that the config sets up never share their gradients.

`sequence_parallel_size` together with `data_parallel_size` has DeepSpeed lay a mesh over the ranks. ZeRO stages 0, 1
and 2 then reduce gradients over the data parallel dimension of the mesh alone: ranks that hold parts of one sequence
each step by their own part, and their copies of the model drift apart from the first step on. ZeRO-3 reduces over all
of them, and so does every stage where the script passes an `mpu`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import zero_stage
from ds_accum.lint.wording import shown

UNLESS_THE_SCRIPT_PASSES_AN_MPU = "unless the script passes an mpu"

BAD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_clipping": 0.0,
  "sequence_parallel_size": 2,
  "data_parallel_size": 1,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}}
}
""",
        launch=Launch(world_size=2),
        reports=(
            Report(
                at="sequence_parallel_size",
                message="gradients are not reduced over the 2 ranks of sequence_parallel_size at ZeRO stage 0 (the"
                " default), unless the script passes an mpu",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_clipping": 0.0,
  "sequence_parallel_size": 2,
  "data_parallel_size": 1,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}},
  "zero_allow_untested_optimizer": true,
  "zero_optimization": {"stage": 3}
}
""",
        launch=Launch(world_size=2),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    if "sequence_parallel_size" not in context.config.top.block.keys or "data_parallel_size" not in context.values:
        return
    size = context.values.get("sequence_parallel_size")
    if isinstance(size, bool) or not isinstance(size, int) or size < 2 or context.config.zero_stage not in (0, 1, 2):
        return
    # The degrees of a launch are those of an `mpu`, which comes before the mesh.
    if context.launch.sequence_parallel_size > 1 or context.launch.pipeline_parallel_size > 1:
        return
    yield Finding(
        at=("sequence_parallel_size",),
        message=f"gradients are not reduced over the {shown(size)} ranks of sequence_parallel_size at"
        f" {zero_stage(context)}",
        help="pass an mpu to initialize in the place of the two sizes, or use ZeRO stage 3",
        depends_on=UNLESS_THE_SCRIPT_PASSES_AN_MPU,
    )


RULE = Rule(
    code="DSA904",
    name="unreduced-sequence-parallel",
    summary="sequence parallel ranks that the config sets up never share their gradients",
    rationale=__doc__,
    when=When.NEVER,
    check=check,
    bad=BAD,
    good=GOOD,
)
