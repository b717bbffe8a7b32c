"""Collectives as they are called, by kind and moment: DeepSpeed's, DDP's, FSDP2's and everybody else's.

All of them end in torch's dispatcher, as an operator of `c10d` (a process group's own methods, also when C++ calls
them) or of `_c10d_functional` (DTensor, FSDP2); there each is seen once. What an operator does inside is not seen
again. Sizes are those of the tensors passed in.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ds_accum.compare.result import CollectiveCount, CollectiveKind, Communication, Moment
from ds_accum.compare.worker.watch import Watch

__all__ = ["CollectiveCounter"]

# Operator of c10d -> its kind and the position of the tensors that are passed in.
_C10D: dict[str, tuple[CollectiveKind, int]] = {
    "allreduce_": ("all-reduce", 0),
    "allreduce_coalesced_": ("all-reduce", 0),
    "reduce_": ("other", 0),
    "broadcast_": ("broadcast", 0),
    "allgather_": ("all-gather", 1),
    "_allgather_base_": ("all-gather", 1),
    "allgather_coalesced_": ("all-gather", 1),
    "allgather_into_tensor_coalesced_": ("all-gather", 1),
    "reduce_scatter_": ("reduce-scatter", 1),
    "_reduce_scatter_base_": ("reduce-scatter", 1),
    "reduce_scatter_tensor_coalesced_": ("reduce-scatter", 1),
    "alltoall_": ("all-to-all", 1),
    "alltoall_base_": ("all-to-all", 1),
    "gather_": ("other", 1),
    "scatter_": ("other", 1),
    "send": ("other", 0),
    "recv_": ("other", 0),
    "recv_any_source_": ("other", 0),
    "barrier": ("other", 0),
    "monitored_barrier_": ("other", 0),
}

# Operator of _c10d_functional, without "_", "_out" and "_coalesced" -> its kind; the tensors come first.
_FUNCTIONAL: dict[str, CollectiveKind] = {
    "all_reduce": "all-reduce",
    "broadcast": "broadcast",
    "all_gather_into_tensor": "all-gather",
    "reduce_scatter_tensor": "reduce-scatter",
    "all_to_all_single": "all-to-all",
    "shard_dim_alltoall": "all-to-all",
    "isend": "other",
    "irecv": "other",
}


class CollectiveCounter(TorchDispatchMode):  # type: ignore[no-untyped-call,unused-ignore]
    """Counts the collectives called inside `with`, under the moment that the watch says.

    With `wait`, each is waited for at once, so that `seconds` is the time they all take on this rank. They then can't
    overlap with anything.
    """

    def __init__(self, watch: Watch, *, wait: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self.seconds = 0.0
        self._watch, self._wait = watch, wait
        self._calls: dict[tuple[CollectiveKind, Moment], int] = defaultdict(int)
        self._bytes: dict[tuple[CollectiveKind, Moment], int] = defaultdict(int)

    def counted(self) -> Communication:
        """What was called so far, as that of one optimizer step."""
        return Communication(
            counted=tuple(
                CollectiveCount(kind=kind, moment=moment, calls=float(calls), bytes=float(self._bytes[kind, moment]))
                for (kind, moment), calls in sorted(self._calls.items())
            ),
            expected=None,
        )

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # A DTensor's operator becomes collectives and operators on plain tensors, which come here afterwards.
        if any(issubclass(kind, Tensor) and kind.__module__.startswith("torch.distributed.tensor") for kind in types):
            return NotImplemented
        collective = _collective(func)
        if collective is None:
            return func(*args, **(kwargs or {}))
        kind, position = collective
        self._calls[kind, self._watch.moment] += 1
        self._bytes[kind, self._watch.moment] += _size(args[position] if len(args) > position else None)
        if not self._wait:
            return func(*args, **(kwargs or {}))
        start = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        _wait_for(result)
        self.seconds += time.perf_counter() - start
        return result


def _collective(func: Any) -> tuple[CollectiveKind, int] | None:
    """The kind of an operator and where its input stands; None for one that is no collective."""
    namespace, _, name = func._schema.name.partition("::")
    if namespace == "c10d":
        return _C10D.get(name)
    if namespace in ("_c10d_functional", "_dtensor"):
        kind = _FUNCTIONAL.get(name.removesuffix("_").removesuffix("_out").removesuffix("_coalesced"))
        return None if kind is None else (kind, 0)
    return None


def _size(value: Any) -> int:
    """Bytes of a tensor, or of all tensors in nested lists."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, list | tuple):
        return sum(_size(item) for item in value)
    return 0


def _wait_for(result: Any) -> None:
    """Waits for a collective: for the work that an operator of c10d returns, or its last result on CUDA."""
    for item in result if isinstance(result, tuple | list) else (result,):
        if isinstance(item, torch.ScriptObject):
            dist.Work.unbox(item).wait()  # type: ignore[attr-defined,unused-ignore]
        elif isinstance(item, Tensor) and item.is_cuda:
            torch.cuda.synchronize(item.device)
