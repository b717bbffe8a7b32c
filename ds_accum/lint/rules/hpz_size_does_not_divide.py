"""ZeRO++'s secondary partition, `zero_hpz_partition_size`, does not divide the ranks.

Each group of so many ranks, usually those of one node, keeps a copy of all parameters of its own, so that the backward
gathers them within the node. The world must fall into such groups; where it does not, every rank fails at start with
"3 is not divisible by 2". A size above the world is taken as the world.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.batch.divisibility import nearest_divisors
from ds_accum.batch.wording import show_values
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import dotted

SIZE = ("zero_optimization", "zero_hpz_partition_size")

BAD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 1,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}
}
""",
        launch=Launch(world_size=12),
        reports=(
            Report(
                at="zero_optimization.zero_hpz_partition_size",
                message="zero_optimization.zero_hpz_partition_size 8 does not divide the world size 12",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 1,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 2}
}
""",
        launch=Launch(world_size=2),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    size, world_size = context.block("zero_optimization").get(SIZE[1]), context.launch.world_size
    if context.config.zero_stage != 3 or not isinstance(size, int) or world_size is None:
        return
    if 1 < size <= world_size and world_size % size:
        yield Finding(
            at=SIZE,
            message=f"{dotted(SIZE)} {size} does not divide the world size {world_size}",
            help=f"set it to {show_values(nearest_divisors(world_size, size).values)}, or leave it out",
        )


RULE = Rule(
    code="DSA215",
    name="hpz-size-does-not-divide",
    summary="the secondary partition of ZeRO++ does not divide the ranks",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
    references=("https://www.deepspeed.ai/tutorials/zeropp/",),
)
