"""What the engine refuses once DeepSpeed has built its own: set-ups in which its weights would not be exact.

Those that the config alone tells are in `ds_accum.config.support`, where the linter finds them before the launch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ds_accum.config.block import DSAccumBlock
from ds_accum.engine import deepspeed_private as private
from ds_accum.engine.private_names import NEWEST, OLDEST, Version, missing_names
from ds_accum.errors import ConfigError

__all__ = ["refuse_unsupported"]


class _Refusal(NamedTuple):
    applies: Callable[[Any, DSAccumBlock], bool]
    what: str
    reason: str
    remedy: str


def refuse_unsupported(engine: Any, settings: DSAccumBlock) -> None:
    """Raises ConfigError for the first refusal that applies to the engine."""
    if gone := missing_names():
        some = ", ".join(map(str, gone[:3])) + (" and others" if gone[3:] else "")
        raise ConfigError(
            "ds_accum.initialize does not take this DeepSpeed release, because parts of it that carry the weight are "
            f"not where they are in the releases it knows: {some}",
            remedy=f"install a release from {_said(OLDEST)} to {_said(NEWEST)}",
        )
    for refusal in _REFUSALS:
        if refusal.applies(engine, settings):
            raise ConfigError(
                f"ds_accum.initialize does not take {refusal.what}, because {refusal.reason}", remedy=refusal.remedy
            )


def _said(version: Version) -> str:
    return ".".join(map(str, version))


_REFUSALS: tuple[_Refusal, ...] = (
    _Refusal(
        lambda engine, _: private.is_pipeline(engine),
        "a pipeline of layers (PipelineModule)",
        "micro-batches there are scheduled by DeepSpeed, and their counts never reach the engine",
        "use ZeRO, or deepspeed.initialize",
    ),
    _Refusal(
        lambda engine, _: not private.has_optimizer(engine),
        "an engine without an optimizer",
        "there is no step to weight",
        "pass an optimizer, name one in the config, or use deepspeed.initialize",
    ),
    _Refusal(
        lambda engine, _: bool(engine.has_moe_layers),
        "DeepSpeed's mixture-of-experts layers",
        "experts are reduced over other ranks than the rest, which was not shown to be exact",
        "use deepspeed.initialize",
    ),
    _Refusal(
        lambda engine, _: private.tensor_parallel_size(engine) > 1,
        "tensor parallelism of DeepSpeed's own (AutoTP)",
        "each token is then computed on several ranks, which was not shown to be counted once",
        "use deepspeed.initialize",
    ),
    _Refusal(
        lambda engine, settings: (
            settings.reduction == "boundary"
            and engine.zero_optimization_partition_gradients()
            and not hasattr(engine, "coalesce_grad_reduction")
        ),
        '"reduction": "boundary"',
        "this DeepSpeed release can't hold back its reductions (0.19.1 and newer can)",
        'use "every_micro_batch"',
    ),
    _Refusal(
        lambda engine, settings: (
            settings.reduction == "boundary"
            and engine.zero_optimization_partition_gradients()
            and not private.manages_accumulation(engine)
        ),
        '"reduction": "boundary" with managed_gradient_accumulation off',
        "DeepSpeed holds reductions back only where it knows the boundary itself",
        'use "every_micro_batch"',
    ),
)
