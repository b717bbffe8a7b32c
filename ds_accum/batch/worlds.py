"""At which world sizes a batch adds up, for a config that is read without knowing its launch.

    world = data parallel x model parallel,  and  data parallel divides global batch / (micro batch x accumulation)

With all three numbers the quotient *is* the data parallel size, so there is one such world or none.
"""

from __future__ import annotations

from dataclasses import dataclass

from ds_accum.batch.divisibility import (
    Indivisible,
    Neighbours,
    divisor_above,
    divisor_below,
    divisors,
    find_indivisible,
)
from ds_accum.batch.imbalance import NAMES
from ds_accum.batch.wording import require_integer, show, show_values
from ds_accum.errors import BatchError

__all__ = ["LegalWorlds", "worlds_for", "worlds_for_triple"]

# A longer list is cut in the middle when it is put into a sentence.
LONGEST_LIST = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class LegalWorlds:
    """The world sizes at which a global batch adds up; empty where there is none, so `if not worlds` asks that.

    `world in worlds` and `worlds.nearest(world)` answer for integers of any size; `listed` and `describe` give all.
    `model_parallel_size` is how many ranks share their samples (`ParallelLayout.model_parallel_size`).

    Raises BatchError if a value is no integer of at least 1.
    """

    global_batch_size: int
    micro_batch_size: int | None = None
    gradient_accumulation_steps: int | None = None
    model_parallel_size: int = 1

    def __post_init__(self) -> None:
        require_integer(self.global_batch_size, name=NAMES["global_batch_size"], error=BatchError)
        if self.micro_batch_size is not None:
            require_integer(self.micro_batch_size, name=NAMES["micro_batch_size"], error=BatchError)
        if self.gradient_accumulation_steps is not None:
            require_integer(
                self.gradient_accumulation_steps, name=NAMES["gradient_accumulation_steps"], error=BatchError
            )
        require_integer(self.model_parallel_size, name="model parallel", error=BatchError)

    @property
    def indivisible(self) -> Indivisible | None:
        """Why there is no such world: global batch is not a multiple of micro batch x accumulation. None if it is."""
        return find_indivisible(self.global_batch_size, self._samples_per_rank)

    @property
    def listed(self) -> tuple[int, ...] | None:
        """Every legal world, ascending; None where they can't be listed in bounded time (quotients from 2^28 on)."""
        if not self:
            return ()
        sizes = (self._quotient,) if self._is_a_triple else divisors(self._quotient)
        return None if sizes is None else tuple(size * self.model_parallel_size for size in sizes)

    def __bool__(self) -> bool:
        return self.indivisible is None

    def __contains__(self, world: int) -> bool:
        data_parallel, rest = divmod(world, self.model_parallel_size)
        if not self or rest or data_parallel < 1:
            return False
        return data_parallel == self._quotient if self._is_a_triple else self._quotient % data_parallel == 0

    def nearest(self, world: int) -> Neighbours:
        """The legal worlds next to `world` (positive), itself excluded; None in a direction without one."""
        if not self:
            return Neighbours(below=None, above=None)
        if self._is_a_triple:
            only = self._quotient * self.model_parallel_size
            return Neighbours(below=only if only < world else None, above=only if only > world else None)
        below = divisor_below(self._quotient, -(-world // self.model_parallel_size))
        above = divisor_above(self._quotient, world // self.model_parallel_size)
        return Neighbours(
            below=None if below is None else below * self.model_parallel_size,
            above=None if above is None else above * self.model_parallel_size,
        )

    def describe(self) -> str:
        """For a sentence: "1, 2, 4, 8 or 16", cut in the middle where it is long; "none"."""
        listed = self.listed
        if listed is None:
            times = "" if self.model_parallel_size == 1 else f"model parallel {show(self.model_parallel_size)} x "
            return f"{times}any divisor of {show(self._quotient)}"
        if len(listed) > LONGEST_LIST:
            head, tail = listed[: LONGEST_LIST - 2], listed[-2:]
            return f"{show_values(head, ', ')}, ..., {show_values(tail)}"
        return show_values(listed) or "none"

    @property
    def _is_a_triple(self) -> bool:
        return self.micro_batch_size is not None and self.gradient_accumulation_steps is not None

    @property
    def _samples_per_rank(self) -> int:
        return (self.micro_batch_size or 1) * (self.gradient_accumulation_steps or 1)

    @property
    def _quotient(self) -> int:
        """The largest legal data parallel size, which every other one divides."""
        return self.global_batch_size // self._samples_per_rank


def worlds_for(
    global_batch_size: int,
    micro_batch_size: int | None = None,
    gradient_accumulation_steps: int | None = None,
    *,
    model_parallel_size: int = 1,
) -> LegalWorlds:
    """The world sizes at which what is given adds up; what is None would be derived (`BatchLedger.solve`).

    Raises BatchError if a value is no integer of at least 1.
    """
    return LegalWorlds(
        global_batch_size=global_batch_size,
        micro_batch_size=micro_batch_size,
        gradient_accumulation_steps=gradient_accumulation_steps,
        model_parallel_size=model_parallel_size,
    )


def worlds_for_triple(
    global_batch_size: int, micro_batch_size: int, gradient_accumulation_steps: int, *, model_parallel_size: int = 1
) -> int | None:
    """The one world size at which all three add up: global / (micro x accumulation) x model parallel; None without one.

    Raises BatchError if a value is no integer of at least 1.
    """
    worlds = worlds_for(
        global_batch_size, micro_batch_size, gradient_accumulation_steps, model_parallel_size=model_parallel_size
    )
    listed = worlds.listed
    return listed[0] if listed else None
