"""What a launch comes to, as far as it is known: micro-batches per step, and ranks that share a gradient.

None means unknown: a file alone does not say how many ranks there are, and a framework may fill in the batch sizes.
"""

from __future__ import annotations

from ds_accum.config.resolve import ACCUMULATION, NumberOrigin
from ds_accum.lint.context import LintContext


def accumulation_steps(context: LintContext) -> int | None:
    """The micro-batches of one optimizer step."""
    batch = context.batch
    written = batch.written.get(ACCUMULATION)
    if isinstance(written, int) and not isinstance(written, bool):
        return written
    if context.has_filled_in_batch or batch.fault is not None or written is not None:
        return None
    if batch.origin(ACCUMULATION) is NumberOrigin.DEFAULT:
        return 1
    ledger = batch.ledger()
    return None if ledger is None else ledger.gradient_accumulation_steps


def reducing_ranks(context: LintContext) -> int | None:
    """How many ranks ZeRO reduces a gradient over; None also where a mesh or AutoTP of the config splits the world."""
    launch, config = context.launch, context.config
    if launch.world_size is None or splits_the_world(context):
        return None
    ranks, rest = divmod(launch.world_size, launch.tensor_parallel_size * launch.pipeline_parallel_size)
    return ranks if not rest and config.zero_stage is not None else None


def splits_the_world(context: LintContext) -> bool:
    """Whether the config itself has ranks share their samples."""
    if "sequence_parallel_size" in context.values or "data_parallel_size" in context.values:
        return True
    tensor_parallel = context.config.schema.blocks.get("tensor_parallel")
    size = None if tensor_parallel is None else context.block("tensor_parallel").get("autotp_size")
    return isinstance(size, int) and size > 1


def is_one_rank(context: LintContext) -> bool:
    """Whether there is certainly nobody to reduce gradients with."""
    return context.launch.world_size == 1
