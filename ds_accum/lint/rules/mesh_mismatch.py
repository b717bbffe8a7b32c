"""`sequence_parallel_size` and `data_parallel_size` do not span the launch.

With both keys in the config DeepSpeed lays a mesh of data parallel x sequence parallel over the ranks. A mesh larger
than the world is an error on every rank. One that is smaller is worse: the ranks inside go on, those left over fail
with "list index out of range", and the job hangs until somebody looks.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.config.resolve import BatchFault
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import what

SEQUENCE, DATA = "sequence_parallel_size", "data_parallel_size"

BAD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 1,
  "data_parallel_size": 2,
  "sequence_parallel_size": 2
}
""",
        launch=Launch(world_size=2),
        reports=(
            Report(
                at="data_parallel_size",
                message="data_parallel_size 2 (line 3) x sequence_parallel_size 2 (line 4) = 4 ranks,"
                " but the world has 2",
            ),
        ),
    ),
    Example(
        config='{"train_micro_batch_size_per_gpu": 1, "data_parallel_size": 1, "sequence_parallel_size": 1}',
        launch=Launch(world_size=2),
        reports=(
            Report(
                at="data_parallel_size",
                message="data_parallel_size 1 (line 1) x sequence_parallel_size 1 (line 1) = 1 rank,"
                " but the world has 2",
            ),
        ),
    ),
    Example(
        config='{"train_micro_batch_size_per_gpu": 1, "data_parallel_size": "2", "sequence_parallel_size": 1}',
        launch=Launch(world_size=2),
        reports=(
            Report(
                at="data_parallel_size",
                message="data_parallel_size must be an integer of at least 1 beside sequence_parallel_size, but is the"
                ' string "2"',
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 1,
  "data_parallel_size": 2,
  "sequence_parallel_size": 1
}
""",
        launch=Launch(world_size=2),
    ),
    # Alone, neither makes a mesh.
    Example(config='{"train_micro_batch_size_per_gpu": 1, "data_parallel_size": 3}', launch=Launch(world_size=2)),
)


def check(context: LintContext) -> Iterator[Finding]:
    values, launch = context.values, context.launch
    if not (SEQUENCE in values and DATA in values and DATA in context.config.top.block.keys):
        return
    if launch.model_parallel_size > 1:
        return  # the script lays the ranks out itself
    is_sound = True
    for key in (DATA, SEQUENCE):
        if _is_a_size(values[key]):
            continue
        is_sound = False
        # The batch arithmetic trips over some of them first.
        if not (context.batch.fault is BatchFault.DATA_PARALLEL and context.batch.fault_key == key):
            other = SEQUENCE if key == DATA else DATA
            yield Finding(
                at=(key,),
                message=f"{key} must be an integer of at least 1 beside {other}, but is {what(values[key])}",
                help=f"write an integer, or leave {DATA} out",
            )
    if not is_sound or launch.world_size is None:
        return
    ranks = values[DATA] * values[SEQUENCE]
    if ranks != launch.world_size:
        yield Finding(
            at=(DATA,),
            message=f"{DATA} {values[DATA]} ({context.line(DATA)}) x {SEQUENCE} {values[SEQUENCE]}"
            f" ({context.line(SEQUENCE)}) = {ranks} rank{'s' * (ranks > 1)}, but the world has {launch.world_size}",
            help=_help(values[SEQUENCE], launch.world_size),
        )


def _is_a_size(value: object) -> bool:
    return isinstance(value, int) and value >= 1


def _help(sequence: int, world_size: int) -> str:
    if world_size % sequence == 0:
        return f'set "{DATA}": {world_size // sequence}, or leave it out'
    return f"make their product {world_size}"


RULE = Rule(
    code="DSA603",
    name="mesh-mismatch",
    summary="sequence_parallel_size and data_parallel_size do not span the launch",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
