"""What a ZeRO stage of DeepSpeed exchanges: its gradients and its parameters, how much and how often.

P parameters of a rank, before ZeRO shards them, on N ranks that hold the same ones; A micro-batches an optimizer step;
e bytes a parameter, g bytes a gradient as it is sent:

    stage     gradients                             parameters
    0         all-reduce P g      once a step
    1         all-reduce P g      once a step       all-gather P/N e    once a step
    2         all-reduce P g      A times           all-gather P/N e    once a step
    3         reduce-scatter P g  A times           all-gather P/N e    A times, 2 A times for a large model

In a pipeline in bfloat16 stage 0 gathers as stage 1 does: DeepSpeed wraps its optimizer in BF16_Optimizer, which cuts
the state (runtime/engine.py:2316-2320, runtime/bf16_optimizer.py:599).

ZeRO-2 and 3 keep only a shard of each gradient, so that every micro-batch has to reduce; where the reductions are
coalesced they keep the whole of it and reduce once, like stages 0 and 1. (Rajbhandari et al. 2020, arXiv 1910.02054,
section 7: stage 0 to 2 move 2 P, stage 3 moves 3 P, at A = 1; what DeepSpeed does instead was read in 0.19.8:
runtime/engine.py:3084-3095, zero/stage_1_and_2.py:441 and 1695-1718, zero/stage3.py:1583.) The few bytes of the
gradient norm and of the overflow check are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ds_accum.errors import UsageError
from ds_accum.plan.communication.transfer import Group, Transfer

__all__ = [
    "MAX_LIVE_PARAMETERS",
    "Exchange",
    "ZeroExchanges",
    "gathers_of_a_micro_batch",
    "zero_exchanges",
    "zero_transfers",
]

# DeepSpeed's defaults of stage3_max_live_parameters and stage3_max_reuse_distance, in elements.
MAX_LIVE_PARAMETERS = 1_000_000_000
MAX_REUSE_DISTANCE = 1_000_000_000

_SOURCE = "DeepSpeed 0.19.8, runtime/engine.py:3084-3095"
_SOURCE_OF_GATHER = "DeepSpeed 0.19.8, runtime/utils.py:1008"
_SOURCE_OF_STAGE_3 = "DeepSpeed 0.19.8, runtime/zero/stage3.py:1583"
_SOURCE_OF_FETCH = "DeepSpeed 0.19.8, runtime/zero/partitioned_param_coordinator.py:353-470"


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """One collective, in elements that a rank passes in."""

    kind: Literal["all-reduce", "reduce-scatter", "all-gather"]
    elements: int
    every_micro_batch: bool
    """Else once an optimizer step."""

    def times(self, gradient_accumulation_steps: int) -> int:
        """How often an optimizer step does it."""
        return gradient_accumulation_steps if self.every_micro_batch else 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ZeroExchanges:
    """What a stage exchanges: the reduction of gradients, and the gathering of parameters if it shards any."""

    reduction: Exchange
    gathering: Exchange | None


def zero_exchanges(
    zero_stage: int,
    *,
    tensors: Sequence[int],
    ranks: int,
    coalesced: bool = False,
    reduce_scatter: bool = True,
    cuts_state: bool = False,
) -> ZeroExchanges:
    """The exchanges of a stage over `ranks`; `tensors` are the elements of each parameter, or their sum alone.

    `coalesced`: ZeRO-2 and 3 reduce at the accumulation boundary alone. `reduce_scatter` is DeepSpeed's switch, which
    only ZeRO-3 heeds. `cuts_state`: ranks share the update at stage 0 too. Stages 1 and 2 shard the flat parameters,
    padded to a multiple of 2 N elements; stage 3 each parameter, padded to a multiple of N. A gather is that of one
    forward: see `gathers_of_a_micro_batch`.
    """
    if zero_stage not in range(4):
        raise UsageError(f"ZeRO has the stages 0, 1, 2 and 3, not {zero_stage}", remedy="give one of them")
    elements = sum(tensors)
    every_micro_batch = zero_stage >= 2 and not coalesced
    if zero_stage < 3:
        gathering = None
        if zero_stage or cuts_state:
            shard = 2 * -(-elements // (2 * ranks))
            gathering = Exchange(kind="all-gather", elements=shard, every_micro_batch=False)
        reduction = Exchange(kind="all-reduce", elements=elements, every_micro_batch=every_micro_batch)
        return ZeroExchanges(reduction=reduction, gathering=gathering)
    shard = sum(-(-size // ranks) for size in tensors)
    reduction = (
        Exchange(kind="reduce-scatter", elements=shard * ranks, every_micro_batch=every_micro_batch)
        if reduce_scatter
        else Exchange(kind="all-reduce", elements=elements, every_micro_batch=every_micro_batch)
    )
    return ZeroExchanges(
        reduction=reduction, gathering=Exchange(kind="all-gather", elements=shard, every_micro_batch=True)
    )


def gathers_of_a_micro_batch(
    parameters: int,
    *,
    max_live_parameters: int = MAX_LIVE_PARAMETERS,
    max_reuse_distance: int = MAX_REUSE_DISTANCE,
) -> int:
    """How often ZeRO-3 gathers the parameters in one micro-batch: 2, for forward and backward, or 1 if they may stay.

    They stay where the whole model fits in both limits (in elements). Of a larger model DeepSpeed keeps some: those
    that it meets again within the reuse distance, and those that the prefetch found gathered, never more than may
    live. So 2 is the most that it can be, and what real runs on two ranks count with neither reuse nor prefetch; with
    a reuse distance of d they gather about d/2 elements less.
    """
    return 1 if parameters <= min(max_live_parameters, max_reuse_distance) else 2


def zero_transfers(
    zero_stage: int,
    *,
    parameters: int,
    ranks: int,
    gradient_accumulation_steps: int,
    parameter_bytes: int,
    gradient_bytes: int,
    coalesced: bool = False,
    reduce_scatter: bool = True,
    gathers: int | None = None,
    cuts_state: bool = False,
    group: Group = "data",
) -> tuple[Transfer, ...]:
    """The transfers of a stage: none on a single rank, which has nobody to exchange with.

    `parameters` are those of one rank before ZeRO shards them, after tensor, pipeline and expert parallel;
    `parameter_bytes` and `gradient_bytes` are those of one element as it is sent. `gathers` of ZeRO-3 in a micro-batch
    follow from the size unless given. `cuts_state`: ranks share the update at stage 0 too.
    """
    exchanges = zero_exchanges(
        zero_stage,
        tensors=(parameters,),
        ranks=ranks,
        coalesced=coalesced,
        reduce_scatter=reduce_scatter,
        cuts_state=cuts_state,
    )
    if ranks == 1 or parameters == 0:
        return ()
    experts = "expert " if group == "expert data" else ""
    reduction, gathering = exchanges.reduction, exchanges.gathering
    often = "A x " if reduction.every_micro_batch else ""
    transfers = [
        Transfer(
            name=f"{experts}gradients",
            kind=reduction.kind,
            group=group,
            ranks=ranks,
            times=reduction.times(gradient_accumulation_steps),
            bytes_each=reduction.elements * gradient_bytes,
            formula=f"{often}P g",
            source=_SOURCE_OF_STAGE_3 if zero_stage == 3 else _SOURCE,
        )
    ]
    if gathering is not None:
        per_micro_batch = 1
        often = ""
        if gathering.every_micro_batch:
            per_micro_batch = gathers_of_a_micro_batch(parameters) if gathers is None else gathers
            often = "A x " if per_micro_batch == 1 else f"{per_micro_batch} A x "
        transfers.append(
            Transfer(
                name=f"{experts}parameters",
                kind=gathering.kind,
                group=group,
                ranks=ranks,
                times=per_micro_batch * gathering.times(gradient_accumulation_steps),
                bytes_each=gathering.elements * parameter_bytes,
                formula=f"{often}P/N e",
                source=_SOURCE_OF_FETCH if gathering.every_micro_batch else _SOURCE_OF_GATHER,
            )
        )
    return tuple(transfers)
