"""`data_parallel_size` and `sequence_parallel_size` do not fill the world.

With both in the config `deepspeed.initialize` lays out a device mesh of data parallel x sequence parallel ranks
before it reads anything else. A mesh larger than the world, or sizes that are no positive integers, fail on every
rank with an error of torch's ("Mesh should not be bigger than default world size", "sizes and strides don't match");
a smaller mesh fails on the ranks outside it, with an IndexError, while the others wait for them.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import number, shown

BAD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "data_parallel_size": 4,
  "sequence_parallel_size": 4
}
""",
        launch=Launch(world_size=8),
        reports=(
            Report(
                at="data_parallel_size",
                message="data_parallel_size 4 (line 3) x sequence_parallel_size 4 (line 4) = 16, but the world is 8",
            ),
        ),
    ),
    Example(
        config='{"train_micro_batch_size_per_gpu": 2, "data_parallel_size": "4", "sequence_parallel_size": 2}',
        launch=Launch(world_size=8),
        reports=(
            Report(at="data_parallel_size", message='data_parallel_size must be an integer of at least 1, but is "4"'),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "data_parallel_size": 4,
  "sequence_parallel_size": 2,
  "zero_optimization": {"stage": 3}
}
""",
        launch=Launch(world_size=8),
    ),
    # Alone, data_parallel_size is not read at all.
    Example(config='{"train_micro_batch_size_per_gpu": 2, "data_parallel_size": 8}', launch=Launch(world_size=8)),
)

_SIZES = ("data_parallel_size", "sequence_parallel_size")


def check(context: LintContext) -> Iterator[Finding]:
    known = context.config.top.block.keys
    if not all(key in context.values and key in known for key in _SIZES):
        return
    product = 1
    for key in _SIZES:
        size = context.values[key]
        if type(size) is not int or size < 1:
            yield Finding(
                at=(key,),
                message=f"{key} must be an integer of at least 1, but is {shown(size)}",
                help="write an integer; data parallel x sequence parallel is the world size",
            )
            return
        product *= size
    world_size = context.launch.world_size
    if world_size is None or product == world_size:
        return
    # Where the script's own layout decides, DeepSpeed lays the mesh out all the same, but never asks it anything.
    if product > world_size or context.launch.model_parallel_size == 1:
        factors = " x ".join(f"{key} {number(context.values[key])} ({context.line(key)})" for key in _SIZES)
        yield Finding(
            at=("data_parallel_size",),
            message=f"{factors} = {number(product)}, but the world is {world_size}",
            help="make the product the world size, or leave data_parallel_size out",
        )


RULE = Rule(
    code="DSA603",
    name="mesh-mismatch",
    summary="data_parallel_size x sequence_parallel_size is not the world size",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
