"""Every private name of DeepSpeed that the engine touches, in one place, and what is done with it.

All of it was read in 0.19.8. `PRIVATE_NAMES` says since which release each name is what it is there; `missing_names` is
asked by `initialize`, so that a release with another layout is refused instead of guessed at, and by a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Literal

import torch

from ds_accum.engine.events import Event
from ds_accum.engine.overriding import overriding
from ds_accum.errors import AccumulationError, ConfigError

PRIVATE_NAMES: tuple[tuple[str, str, str], ...] = ()


def missing_names() -> tuple[tuple[str, str, str], ...]:
    """Those of the names that the installed DeepSpeed does not have."""
    return ()


OptimizerKind = Literal[
    "BF16_Optimizer",
    "FP16_Optimizer",
    "FP16_UnfusedOptimizer",
    "DeepSpeedZeroOptimizer",
    "DeepSpeedZeroOptimizer_Stage3",
    "torch",
]


def kind_of(optimizer: Any) -> OptimizerKind:
    """Which of DeepSpeed's wrappers an optimizer is; "torch" for one that is not wrapped.

    Raises ConfigError for a wrapper that is not known.
    """
    from deepspeed.runtime.base_optimizer import DeepSpeedOptimizer
    from deepspeed.runtime.bf16_optimizer import BF16_Optimizer
    from deepspeed.runtime.fp16.fused_optimizer import FP16_Optimizer
    from deepspeed.runtime.fp16.unfused_optimizer import FP16_UnfusedOptimizer
    from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3
    from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer

    # Exactly these classes: a subclass (SuperOffload, ZenFlow) reduces or steps in ways of its own.
    kinds: dict[type, OptimizerKind] = {
        BF16_Optimizer: "BF16_Optimizer",
        FP16_Optimizer: "FP16_Optimizer",
        FP16_UnfusedOptimizer: "FP16_UnfusedOptimizer",
        DeepSpeedZeroOptimizer: "DeepSpeedZeroOptimizer",
        DeepSpeedZeroOptimizer_Stage3: "DeepSpeedZeroOptimizer_Stage3",
    }
    kind = kinds.get(type(optimizer))
    if kind is not None:
        return kind
    if isinstance(optimizer, DeepSpeedOptimizer):
        raise ConfigError(
            f"ds-accum does not know how {type(optimizer).__name__} applies gradients",
            remedy="use an optimizer wrapper that is listed in the README, or deepspeed.initialize",
        )
    return "torch"


# --- loss scale -------------------------------------------------------------------------------------------------------


def scale_holder(optimizer: Any) -> Any:
    """The object whose `cur_scale` a 16-bit wrapper scales by: up to 0.18.5 the wrapper itself."""
    return getattr(optimizer, "loss_scale_config", optimizer)


def leaves_norm_scaled(optimizer: Any) -> bool:
    """Whether the wrapper reports the norm of the gradient as it is scaled (unfused_optimizer.py, `step`)."""
    return kind_of(optimizer) == "FP16_UnfusedOptimizer"


# --- skipping a step --------------------------------------------------------------------------------------------------


@contextmanager
def overflowing_zero(optimizer: Any) -> Iterator[None]:
    """A step of ZeRO's takes its own path for an overflow, but keeps the loss scale."""

    def overflow(*_: Any, **__: Any) -> None:
        optimizer.overflow = True
        # ZeRO-3 gathers what it sees during the backward; DeepSpeed's own check empties this.
        tracker = getattr(optimizer, "inf_or_nan_tracker", None)
        if tracker is not None:
            tracker.zero_()

    def keep(*_: Any, **__: Any) -> None:
        return None

    values: dict[str, Any] = {"check_overflow": overflow, "_update_scale": keep}
    if kind_of(optimizer) == "DeepSpeedZeroOptimizer":
        values["check_grad_overflow"] = True
    else:
        values["dtype"] = torch.float16  # ZeRO-3 looks for an overflow in fp16 alone
    with overriding(optimizer, **values):
        yield


@contextmanager
def refusing_invalid_norms(optimizer: Any) -> Iterator[None]:
    """A norm that is not finite skips the step in bf16, too: ZeRO-1/2 otherwise write it into the weights.

    `step` (stage_1_and_2.py) looks at `check_grad_overflow` before it takes the norm, for a pass over the gradients,
    and again afterwards: only the second time it is set here.
    """
    if kind_of(optimizer) != "DeepSpeedZeroOptimizer" or not hasattr(optimizer, "check_grad_overflow"):
        yield
        return
    original = optimizer.scaled_global_norm

    def norm(*arguments: Any, **options: Any) -> Any:
        result = original(*arguments, **options)
        optimizer.check_grad_overflow = True
        return result

    with overriding(optimizer, scaled_global_norm=norm, check_grad_overflow=optimizer.check_grad_overflow):
        yield


def drop_bf16_gradients(optimizer: Any) -> None:
    """What `BF16_Optimizer.step` does with gradients that are not finite; nothing for torch's own optimizers."""
    if kind_of(optimizer) == "BF16_Optimizer":
        optimizer._global_grad_norm = float("inf")
        optimizer.clear_hp_grads()
        optimizer.clear_lp_grads()


# --- the reduction ----------------------------------------------------------------------------------------------------


def reduction_group() -> Any:
    """The process group that gradients are reduced over: data parallel x sequence parallel."""
    from deepspeed.utils import groups

    return groups._get_sequence_data_parallel_group()


def divisor_of(engine: Any) -> float:
    """What DeepSpeed divides the sum of the ranks' gradients by, whichever way it gets there.

    The number of ranks; with sequence parallelism through an mpu, the data parallel ranks alone. Two ways of ZeRO-3's
    divide by something else: its reduce-scatter by all ranks (coalesced_collectives.py, `reduce_scatter_coalesced`),
    and a predivide factor that equals the ranks is not multiplied back (stage3.py).
    """
    from deepspeed import comm

    if not engine.gradient_average:
        return 1.0
    ranks = float(comm.get_world_size(reduction_group()))
    sequence = float(getattr(engine, "sequence_parallel_size", 1) or 1)
    optimizer = engine.optimizer
    if kind_of(optimizer) != "DeepSpeedZeroOptimizer_Stage3":
        return ranks / sequence
    if engine.zero_reduce_scatter():
        return ranks
    predivide = float(engine.gradient_predivide_factor())
    if engine.postscale_gradients() and predivide == ranks:
        return ranks / sequence * predivide
    return ranks / sequence


def finish_reduction(engine: Any) -> None:
    """Completes the gradients of a window whose last backward was not known to be the last, as `step` does for
    unmanaged accumulation."""
    optimizer = engine.optimizer
    if hasattr(optimizer, "set_gradient_accumulation_boundary"):
        optimizer.set_gradient_accumulation_boundary(True)
    if engine.zero_optimization_partition_gradients():
        optimizer.finalize_gradient_accumulation_boundary()
    else:
        engine.allreduce_gradients()


@contextmanager
def reducing_nothing(engine: Any) -> Iterator[None]:
    """The end of `coalesce_grad_reduction` does not reduce what was held back."""

    def nothing(*_: Any) -> None:
        return None

    with overriding(engine, _flush_coalesced_reduction_zero12=nothing, _flush_coalesced_reduction_zero3=nothing):
        yield


def start_of_backward(engine: Any) -> None:
    """Lets ZeRO-3 count a backward that no forward came before.

    Its micro-batch number moves in the forward alone (stage3.py, `clear_backward_seen_flag`), so that the second of two
    backwards after two forwards overwrites the gradient of the first.
    """
    optimizer = engine.optimizer
    if getattr(optimizer, "_epilogue_ran_this_backward", False):
        optimizer.clear_backward_seen_flag()


def manages_accumulation(engine: Any) -> bool:
    """Whether the engine counts micro-batches to the boundary by itself; before 0.19.4 it always did."""
    managed = getattr(engine, "managed_gradient_accumulation", None)
    return bool(managed()) if managed is not None else True


# --- what DeepSpeed did while it was initialized ----------------------------------------------------------------------


def undo_the_step_of_initialization(optimizer: Any) -> None:
    """Takes back the update that the 16-bit wrappers make with zero gradients in their constructors.

    It decays the master weights and leaves Adam at its second step (`initialize_optimizer_states`). The 16-bit weights
    are not written by it: they are what the master weights are made of once more.
    """
    pairs: Iterable[tuple[Any, Any]]
    if kind_of(optimizer) == "FP16_Optimizer":
        pairs = zip(optimizer.fp32_groups_flat, optimizer.fp16_groups_flat, strict=True)
    elif kind_of(optimizer) == "FP16_UnfusedOptimizer":
        pairs = ((a, b) for masters, models in zip(optimizer.fp32_groups, optimizer.fp16_groups, strict=True)
                 for a, b in zip(masters, models, strict=True))  # fmt: skip
    else:
        return
    with torch.no_grad():
        for master, model in pairs:
            master.copy_(model)
    optimizer.optimizer.state.clear()
    for group in optimizer.optimizer.param_groups:
        if "step" in group:  # FusedAdam keeps it here
            group["step"] = 0


# --- what kind of engine this is --------------------------------------------------------------------------------------


def is_pipeline(engine: Any) -> bool:
    """Whether the engine runs a PipelineModule."""
    from deepspeed.runtime.pipe.engine import PipelineEngine

    return isinstance(engine, PipelineEngine)


def has_optimizer(engine: Any) -> bool:
    """Whether the engine can step at all."""
    from deepspeed.runtime.utils import DummyOptim

    return engine.optimizer is not None and not isinstance(engine.optimizer, DummyOptim)


def tensor_parallel_size(engine: Any) -> int:
    """Ranks that share each layer through DeepSpeed's AutoTP."""
    size = getattr(engine, "autotp_size", None)
    return int(size()) if callable(size) else 1


def keeps_no_gradients(engine: Any) -> bool:
    """Whether `p.grad` is None after each backward: moved into partitions, or into the wrapper's fp32 buffers."""
    return bool(engine.zero_optimization_partition_gradients()) or kind_of(engine.optimizer) == "BF16_Optimizer"


def uses_muon(optimizer: Any) -> bool:
    """Whether any parameter group is Muon's, whose momentum takes gradients in before the step does."""
    return any(group.get("use_muon", False) for group in optimizer.param_groups)


def require_torch_style_backward(engine: Any) -> None:
    """Raises AccumulationError where DeepSpeed knows only `engine.backward`."""
    if not engine._support_torch_style_backward:
        raise AccumulationError(
            "ZeRO 0 propagates losses back through engine.backward alone",
            remedy="engine.backward(loss, num_tokens=n)",
        )


def require_no_sync_works(engine: Any) -> None:
    """Raises AccumulationError where a reduction would start inside `no_sync` and fail at the second backward."""
    if (
        kind_of(engine.optimizer) == "DeepSpeedZeroOptimizer"
        and engine.zero_optimization_stage() == 1
        and engine.optimizer.overlap_comm
        and engine.gradient_accumulation_steps() == 1
    ):
        raise AccumulationError(
            "no_sync with ZeRO-1, overlap_comm and 1 accumulation step reduces gradients in each backward all the same",
            remedy="turn overlap_comm off, or set gradient_accumulation_steps to the micro-batches of a step",
        )


# --- events -----------------------------------------------------------------------------------------------------------


def watch_events(engine: Any, on_event: Callable[[Event, str], None]) -> None:
    """Has the optimizer say before it steps, takes a norm, updates, or sets gradients to zero: the event, and the call.

    Wrapped on the instance, each once: what DeepSpeed does inside is left as it is.
    """
    optimizer = engine.optimizer
    for event, name in _EVENTS[kind_of(optimizer)]:
        if hasattr(optimizer, name):
            setattr(optimizer, name, _saying(on_event, event, name, getattr(optimizer, name)))
    steps_under_way: list[str] = []
    if kind_of(optimizer) != "torch":
        # Before a wrapper touches its gradients, which it does long before the optimizer inside steps.
        optimizer.step = _saying(on_event, "step", "step", optimizer.step, steps_under_way)

    def update(*_: Any) -> None:
        if not steps_under_way:
            on_event("step", "optimizer.step()")
        on_event("update", "optimizer.step()")

    basic = getattr(engine, "basic_optimizer", None) or optimizer
    # ZeRO-3 with a part of its optimizer offloaded has one for either side.
    parts: tuple[Any, ...] = (basic, getattr(optimizer, "backup_optimizer", None))
    for stepped in parts:
        if hasattr(stepped, "register_step_pre_hook"):
            stepped.register_step_pre_hook(update)


def updates_a_step(optimizer: Any) -> int:
    """How often the optimizer inside a wrapper is stepped for one update: ZeRO does it for each part of its groups."""
    kind = kind_of(optimizer)
    if kind == "DeepSpeedZeroOptimizer":
        return len(optimizer.bit16_groups)
    return len(optimizer.fp16_groups) if kind == "DeepSpeedZeroOptimizer_Stage3" else 1


_EVENTS: dict[OptimizerKind, tuple[tuple[Event, str], ...]] = {
    "DeepSpeedZeroOptimizer": (("norm", "scaled_global_norm"), ("zero", "zero_grad")),
    "DeepSpeedZeroOptimizer_Stage3": (("norm", "_get_norm_groups"), ("zero", "zero_grad")),
    "FP16_Optimizer": (("norm", "unscale_and_clip_grads"), ("zero", "zero_grad")),
    "FP16_UnfusedOptimizer": (("norm", "unscale_and_clip_grads"), ("zero", "zero_grad")),
    "BF16_Optimizer": (("norm", "get_grads_for_norm"), ("zero", "zero_grad")),
    "torch": (("zero", "zero_grad"),),
}


def _saying(
    on_event: Callable[[Event, str], None], event: Event, name: str, function: Any, under_way: list[str] | None = None
) -> Any:
    @wraps(function)
    def saying(*arguments: Any, **options: Any) -> Any:
        # BF16_Optimizer collects the gradients twice, to measure them and to clip them.
        if not options.get("for_clipping", False):
            on_event(event, f"optimizer.{name}()")
        if under_way is None:
            return function(*arguments, **options)
        under_way.append(name)
        try:
            return function(*arguments, **options)
        finally:
            under_way.pop()

    return saying
