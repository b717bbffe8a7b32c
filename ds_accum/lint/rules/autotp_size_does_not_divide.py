"""`tensor_parallel.autotp_size` does not fit the launch, or is not read as a number.

AutoTP lays a mesh of data parallel x tensor parallel over the ranks, and takes world // autotp_size for the former.
What does not divide leaves ranks over, which fail with "list index out of range" while the others wait; more than the
world is a bare assertion. Its namesake `tp.tp_size` must be 1 or the same. Text won't do either: the model of the
block would read "2" and drop "auto", but `deepspeed.initialize` compares the raw value with 0 first.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import dotted, what

SIZE = ("tensor_parallel", "autotp_size")
NESTED_SIZE = ("tensor_parallel", "tp", "tp_size")

BAD = (
    Example(
        config='{"train_micro_batch_size_per_gpu": 1, "tensor_parallel": {"autotp_size": 3}}',
        launch=Launch(world_size=2),
        reports=(
            Report(
                at="tensor_parallel.autotp_size",
                message="tensor_parallel.autotp_size 3 does not divide the world size 2",
            ),
        ),
    ),
    Example(
        config='{"train_micro_batch_size_per_gpu": 1, "tensor_parallel": {"autotp_size": "2"}}',
        launch=Launch(world_size=2),
        reports=(
            Report(
                at="tensor_parallel.autotp_size",
                message='tensor_parallel.autotp_size must be an integer, but is the string "2"',
            ),
        ),
    ),
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 1,
  "tensor_parallel": {
    "autotp_size": 2,
    "preset_model": "llama",
    "tp": {"tp_size": 4}
  }
}
""",
        launch=Launch(world_size=2),
        reports=(
            Report(
                at="tensor_parallel.tp.tp_size",
                message="tensor_parallel.tp.tp_size 4 (line 6) is neither 1 nor autotp_size 2 (line 4)",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 1,
  "tensor_parallel": {"autotp_size": 2, "preset_model": "llama", "tp": {"tp_size": 2}}
}
""",
        launch=Launch(world_size=2),
    ),
    Example(
        config='{"train_micro_batch_size_per_gpu": 1, "tensor_parallel": {"autotp_size": 0, "tp": {"tp_size": 4}}}',
        launch=Launch(world_size=2),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    block = context.block("tensor_parallel")
    if not block.present or not block.is_mapping or "tensor_parallel" not in context.config.top.block.keys:
        return
    written = block.raw.get("autotp_size")
    # `deepspeed.initialize` itself looks since 0.18.6, after the block's model; what is empty
    # passes there, and is refused by the model.
    if isinstance(written, str | list | dict) and written and context.version >= (0, 18, 6):
        if written == "auto" or "autotp_size" in block.values:
            yield Finding(
                at=SIZE,
                message=f"{dotted(SIZE)} must be an integer, but is {what(written)}",
                help="write the number without quotes, or leave the key out",
            )
        return
    size = block.get("autotp_size")
    if not isinstance(size, int) or size <= 1:
        return
    world_size = context.launch.world_size
    if world_size is not None and world_size % size != 0:
        yield Finding(
            at=SIZE,
            message=f"{dotted(SIZE)} {size} does not divide the world size {world_size}",
            help=f"use a divisor of {world_size}, or leave it out",
        )
        return
    nested = context.block("tensor_parallel.tp").get("tp_size")
    if context.version >= (0, 18, 6) and isinstance(nested, int) and nested not in (1, size):
        yield Finding(
            at=NESTED_SIZE,
            message=f"{dotted(NESTED_SIZE)} {nested} ({context.line(*NESTED_SIZE)}) is neither 1 nor autotp_size {size}"
            f" ({context.line(*SIZE)})",
            help="leave it out: autotp_size alone decides",
        )


RULE = Rule(
    code="DSA605",
    name="autotp-size-does-not-divide",
    summary="tensor_parallel.autotp_size does not fit the launch, or is not read as a number",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
