"""Who trains: one class for each way, all behind the same few methods.

engine = start(variant, context)
outcome = engine.train_window(batches, watch)
engine.parameters()             # complete, float64, by name, on rank 0
"""

from __future__ import annotations

from collections.abc import Callable

from ds_accum.compare.spec import EngineKind, Variant
from ds_accum.compare.worker.engines.data_parallel import DistributedDataParallelEngine, FullyShardedEngine
from ds_accum.compare.worker.engines.deepspeed_engines import StockEngine, TokenEngine
from ds_accum.compare.worker.engines.protocol import Context, Engine, Held, WindowOutcome
from ds_accum.compare.worker.engines.single import SingleProcessEngine

__all__ = ["Context", "Engine", "Held", "WindowOutcome", "start"]

_ENGINES: dict[EngineKind, Callable[[Variant, Context], Engine]] = {
    "stock": StockEngine,
    "token": TokenEngine,
    "ddp": lambda variant, context: DistributedDataParallelEngine(variant, context, deferred=True),
    "ddp-every": lambda variant, context: DistributedDataParallelEngine(variant, context, deferred=False),
    "fsdp": lambda variant, context: FullyShardedEngine(variant, context, deferred=True),
    "fsdp-every": lambda variant, context: FullyShardedEngine(variant, context, deferred=False),
    "single": SingleProcessEngine,
}


def start(variant: Variant, context: Context) -> Engine:
    """The engine of a variant on a fresh model. All ranks call it together."""
    return _ENGINES[variant.engine](variant, context)
