"""The batch equation in words, each factor with where it came from.

train_batch_size 100 (line 2) is not micro batch 3 (line 3) x accumulation 4 (line 4) x data parallel 8 = 96
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ds_accum.config.resolve import ACCUMULATION, GLOBAL_BATCH, MICRO_BATCH
from ds_accum.lint.context import LintContext
from ds_accum.lint.wording import number

if TYPE_CHECKING:
    from ds_accum.batch import Imbalance, Quantity

_NAMES = {GLOBAL_BATCH: "train_batch_size", MICRO_BATCH: "micro batch", ACCUMULATION: "accumulation"}


def written(context: LintContext, key: str) -> str:
    """A batch size that the file gives, with its line: "micro batch 3 (line 3)"."""
    return f"{_NAMES[key]} {number(context.values[key])} ({context.line(key)})"


def product(context: LintContext, imbalance: Imbalance) -> str:
    """The right side of the equation: the factors with their origins and what they multiply to."""
    factors = [written(context, key) for key in (MICRO_BATCH, ACCUMULATION) if key in context.batch.written]
    if context.batch.data_parallel.size is not None:
        factors.append(data_parallel(context))
    said = " x ".join(factors)
    return f"{said} = {number(imbalance.product)}" if len(factors) > 1 else said


def data_parallel(context: LintContext) -> str:
    """The data parallel size and how it came about: "data parallel 8 (world 16 / tensor 2)"."""
    resolved, launch = context.batch.data_parallel, context.launch
    assert resolved.size is not None, "only asked for where the world size is known"
    said = f"data parallel {number(resolved.size)}"
    if launch.model_parallel_size > 1:
        return f"{said} ({resolved.equation.rsplit(' = ', 1)[0]})"
    if resolved.divisor_key is not None:
        line = context.line(resolved.divisor_key)
        if resolved.divisor_key == "data_parallel_size":
            return f"{said} ({line})"
        return f"{said} (world {launch.world_size} / sequence_parallel_size, {line})"
    return f"{said} (the world size)"


def legal_values(context: LintContext, imbalance: Imbalance) -> str:
    """What to change, one number at a time: "set train_batch_size to 96, or launch 4 ranks"."""
    keys: dict[Quantity, str] = {
        "global_batch_size": GLOBAL_BATCH,
        "micro_batch_size": MICRO_BATCH,
        "gradient_accumulation_steps": ACCUMULATION,
    }
    legal = imbalance.legal
    changes = [f"set {key} to {_either(legal[quantity].values)}" for quantity, key in keys.items() if quantity in legal]
    data_parallel = context.batch.data_parallel
    if "data_parallel_size" in legal and data_parallel.size is not None and data_parallel.divisor_key is None:
        ranks = context.launch.model_parallel_size
        worlds = [size * ranks for size in legal["data_parallel_size"].values]
        changes.append(f"launch {_either(worlds)} {'rank' if worlds == [1] else 'ranks'}")
    return ", or ".join(changes) or "change the batch sizes"


def _either(sizes: Iterable[int]) -> str:
    return " or ".join(map(number, sizes))
