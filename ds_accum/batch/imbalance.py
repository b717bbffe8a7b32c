"""Why a batch does not add up, as facts: the equation, the remainder, and the legal values around each number.

    global batch = micro batch x data parallel x accumulation

DeepSpeed floors before it compares (100 samples, micro batch 3, 8 ranks: "100 != 3 * 4 * 8"); here nothing is floored,
so what is reported are the numbers that were written.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

from ds_accum.batch.divisibility import Neighbours, nearest_divisors, nearest_multiples
from ds_accum.batch.wording import show, show_list, show_product, show_values

__all__ = ["Imbalance", "Quantity", "find_imbalance"]

Quantity = Literal["global_batch_size", "micro_batch_size", "data_parallel_size", "gradient_accumulation_steps"]

# How a message says each, in the order of the equation.
NAMES: dict[Quantity, str] = {
    "global_batch_size": "global batch",
    "micro_batch_size": "micro batch",
    "data_parallel_size": "data parallel",
    "gradient_accumulation_steps": "accumulation",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Imbalance:
    """A global batch that its other numbers can't produce; all are positive, None is not given.

    With both micro batch and accumulation the product has to equal the global batch; with one or none of them it has
    to divide it, because the missing one is derived (with neither: accumulation 1).
    """

    global_batch_size: int
    data_parallel_size: int
    micro_batch_size: int | None = None
    gradient_accumulation_steps: int | None = None

    @property
    def factors(self) -> dict[Quantity, int]:
        """The given numbers on the right side, in the order of the equation."""
        sizes: dict[Quantity, int | None] = {
            "micro_batch_size": self.micro_batch_size,
            "data_parallel_size": self.data_parallel_size,
            "gradient_accumulation_steps": self.gradient_accumulation_steps,
        }
        return {quantity: size for quantity, size in sizes.items() if size is not None}

    @property
    def product(self) -> int:
        """What the factors multiply to, in samples."""
        return prod(self.factors.values())

    @property
    def remainder(self) -> int:
        """global batch mod product, in samples; 0 where the global batch is a multiple, but has to be equal."""
        return self.global_batch_size % self.product

    @property
    def is_overdetermined(self) -> bool:
        """All are given, so that nothing is left to derive."""
        return self.micro_batch_size is not None and self.gradient_accumulation_steps is not None

    @property
    def legal(self) -> dict[Quantity, Neighbours]:
        """For each number that could be changed alone: the nearest values at which the batch adds up.

        A number is left out where no value of it alone would do. Where everything is given there is exactly one.
        """
        legal: dict[Quantity, Neighbours] = {}
        if self.is_overdetermined:
            legal["global_batch_size"] = _beside(self.global_batch_size, self.product)
        else:
            legal["global_batch_size"] = nearest_multiples(self.global_batch_size, self.product)
        for quantity, size in self.factors.items():
            needed, rest = divmod(self.global_batch_size, self.product // size)
            if rest == 0:
                legal[quantity] = _beside(size, needed) if self.is_overdetermined else nearest_divisors(needed, size)
        return {quantity: neighbours for quantity, neighbours in legal.items() if neighbours.values}

    def describe(self) -> str:
        """The equation that does not hold, with its numbers."""
        written = f"global batch {show(self.global_batch_size)}"
        product = show_product((NAMES[quantity], size) for quantity, size in self.factors.items())
        if self.is_overdetermined:
            return f"{written} is not {product}"
        return f"{written} is not a multiple of {product} (remainder {show(self.remainder)})"

    def describe_legal(self) -> str:
        """The legal values around each number: "nearest: 96, 128; or micro batch 5, 25"."""
        legal = self.legal
        said = [f"{NAMES[quantity]} {show_values(near.values, ', ')}" for quantity, near in legal.items()]
        if self.is_overdetermined:
            return f"it adds up with {show_list(said)}"
        return f"nearest: {'; or '.join(said).removeprefix('global batch ')}"

    def describe_remedy(self) -> str:
        """What to do, one change at a time: "change global batch to 96 or 128, or micro batch to 5 or 25"."""
        changes = [f"{NAMES[quantity]} to {show_values(near.values)}" for quantity, near in self.legal.items()]
        return f"change {show_list(changes, last=', or ')}"


def find_imbalance(
    *,
    global_batch_size: int,
    data_parallel_size: int,
    micro_batch_size: int | None = None,
    gradient_accumulation_steps: int | None = None,
) -> Imbalance | None:
    """None where the positive integers given add up, or leave room for a missing one that would make them."""
    imbalance = Imbalance(
        global_batch_size=global_batch_size,
        data_parallel_size=data_parallel_size,
        micro_batch_size=micro_batch_size,
        gradient_accumulation_steps=gradient_accumulation_steps,
    )
    if imbalance.is_overdetermined:
        return imbalance if imbalance.product != global_batch_size else None
    return imbalance if imbalance.remainder else None


def _beside(written: int, needed: int) -> Neighbours:
    """The one legal value, on its side of the written one."""
    return Neighbours(below=needed, above=None) if needed < written else Neighbours(below=None, above=needed)
