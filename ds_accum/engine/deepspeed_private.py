"""What is done with DeepSpeed's private parts, and how its releases differ there: 0.18.3 to 0.19.8.

A difference is asked for, not looked up by version: whether there is an attribute, a function, a parameter. The names
themselves, with the release since which each is what it is in 0.19.8, are in `private_names`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal

import torch

from ds_accum.engine.overriding import overriding
from ds_accum.errors import ConfigError

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
    # Exactly these classes: a subclass (SuperOffload, ZenFlow) reduces or steps in ways of its own.
    kind = _kinds().get(type(optimizer))
    if kind is not None:
        return kind
    from deepspeed.runtime.base_optimizer import DeepSpeedOptimizer

    if isinstance(optimizer, DeepSpeedOptimizer):
        raise ConfigError(
            f"ds-accum does not know how {type(optimizer).__name__} applies gradients",
            remedy="use an optimizer wrapper that is listed in the README, or deepspeed.initialize",
        )
    return "torch"


@cache
def _kinds() -> dict[type, OptimizerKind]:
    from deepspeed.runtime.bf16_optimizer import BF16_Optimizer
    from deepspeed.runtime.fp16.fused_optimizer import FP16_Optimizer
    from deepspeed.runtime.fp16.unfused_optimizer import FP16_UnfusedOptimizer
    from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3
    from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer

    return {
        BF16_Optimizer: "BF16_Optimizer",
        FP16_Optimizer: "FP16_Optimizer",
        FP16_UnfusedOptimizer: "FP16_UnfusedOptimizer",
        DeepSpeedZeroOptimizer: "DeepSpeedZeroOptimizer",
        DeepSpeedZeroOptimizer_Stage3: "DeepSpeedZeroOptimizer_Stage3",
    }


# --- loss scale -------------------------------------------------------------------------------------------------------


def scale_holder(optimizer: Any) -> Any:
    """The object whose `cur_scale` a 16-bit wrapper scales by: up to 0.18.5 the wrapper itself."""
    return getattr(optimizer, "loss_scale_config", optimizer)


def moves_scale(optimizer: Any) -> bool:
    """Whether a 16-bit wrapper has a loss scale to move: in bf16 it may have none."""
    return bool(getattr(scale_holder(optimizer), "use_grad_scaling", True))


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
    """A norm that is not finite skips the step of ZeRO's in bf16 and fp32, too, instead of going into the weights.

    ZeRO-1/2 look at `check_grad_overflow` before they take the norm, for a pass over the gradients, and again
    afterwards: only the second time it is set here. ZeRO-3 needs no help. Older releases look at no norm afterwards:
    there the pass over the gradients is made.
    """
    # What the last skipped step has left; releases that do not look for an overflow leave it, too.
    optimizer.overflow = False
    if not _checks_norms():
        with _checking_gradients(optimizer):
            yield
        return
    if kind_of(optimizer) != "DeepSpeedZeroOptimizer":
        yield
        return
    original = optimizer.scaled_global_norm

    def norm(*arguments: Any, **options: Any) -> Any:
        result = original(*arguments, **options)
        optimizer.check_grad_overflow = True
        return result

    with overriding(optimizer, scaled_global_norm=norm, check_grad_overflow=optimizer.check_grad_overflow):
        yield


def _checks_norms() -> bool:
    """Whether DeepSpeed's optimizers look at the norm before they use it."""
    from deepspeed.runtime import utils

    return hasattr(utils, "is_invalid_grad_norm")


@contextmanager
def _checking_gradients(optimizer: Any) -> Iterator[None]:
    """ZeRO looks for an overflow before it steps, in whatever precision."""
    if kind_of(optimizer) == "DeepSpeedZeroOptimizer":
        with overriding(optimizer, check_grad_overflow=True):
            yield
        return
    original = optimizer._overflow_check_and_loss_scale_update

    def check() -> Any:
        with overriding(optimizer, dtype=torch.float16):  # it looks for an overflow in fp16 alone
            return original()

    with overriding(optimizer, _overflow_check_and_loss_scale_update=check):
        yield


@contextmanager
def heeding_overflow(optimizer: Any) -> Iterator[None]:
    """A step of a 16-bit wrapper's is skipped for an overflow in bf16, too.

    Without a loss scale, releases that do not look at the norm look for the overflow and step all the same.
    """
    holder = scale_holder(optimizer)
    if _checks_norms() or not hasattr(holder, "use_grad_scaling"):
        yield
        return
    with overriding(holder, use_grad_scaling=True):
        yield


def drop_what_is_left(optimizer: Any) -> None:
    """Sets the gradients of a 16-bit wrapper to zero after its step where DeepSpeed has not.

    In bf16 without ZeRO it did not before 0.18.6, and after an overflow not even the wrapper did.
    """
    if kind_of(optimizer) in ("FP16_Optimizer", "FP16_UnfusedOptimizer") and any(
        parameter.grad is not None for group in optimizer.fp16_groups for parameter in group
    ):
        optimizer.zero_grad()


def norm_after_step(engine: Any, *, overflow: bool) -> Any:
    """The norm that the step took, None if it took none; infinite after an overflow."""
    norm = getattr(engine.optimizer, "_global_grad_norm", engine.get_global_grad_norm())
    return math.inf if overflow and norm is not None and math.isfinite(norm) else norm


def takes_norm(engine: Any, *, always: bool) -> bool:
    """Whether the norm of the complete gradient is taken in each step; `always` has us take a plain optimizer's."""
    if kind_of(engine.optimizer) == "torch":
        return bool(engine.gradient_clipping() > 0) or always
    return bool(getattr(engine.optimizer, "compute_grad_norm", True))


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
    unmanaged accumulation since 0.19.4."""
    optimizer = engine.optimizer
    kind = kind_of(optimizer)
    if hasattr(optimizer, "set_gradient_accumulation_boundary"):
        optimizer.set_gradient_accumulation_boundary(True)
    elif kind != "torch":
        optimizer.is_gradient_accumulation_boundary = True
    if not engine.zero_optimization_partition_gradients():
        engine.allreduce_gradients()
    elif hasattr(optimizer, "finalize_gradient_accumulation_boundary"):
        optimizer.finalize_gradient_accumulation_boundary()
    elif kind == "DeepSpeedZeroOptimizer":
        _take_accumulated_gradients(optimizer)


def _take_accumulated_gradients(optimizer: Any) -> None:
    """What ZeRO-2 does with its accumulated gradients in a backward at the boundary (stage_1_and_2.py,
    `independent_gradient_partition_epilogue`)."""
    for index in range(len(optimizer.bit16_groups)):
        accumulated = optimizer.all_grad_tensors[index]
        if accumulated is not None:
            optimizer.averaged_gradients[index] = optimizer.get_flat_partition(
                optimizer.params_in_partition[index],
                optimizer.first_offset[index],
                optimizer.partition_size[index],
                dtype=optimizer.gradient_accumulation_dtype,
                device=optimizer.device,
                param_group_idx=index,
                return_tensor_list=True,
            )
            optimizer.all_grad_tensors[index] = None


def begin_at_a_boundary(engine: Any) -> None:
    """Lets the next window be whole: DeepSpeed finds boundaries by the number of micro-batches since the beginning."""
    steps = engine.gradient_accumulation_steps()
    engine.micro_steps = -(-engine.micro_steps // steps) * steps


def set_gradients_to_zero(engine: Any) -> None:
    """As `_take_model_step` does it after a step."""
    if kind_of(engine.optimizer) == "torch":
        engine.zero_grad()
    else:
        engine.optimizer.zero_grad()


@contextmanager
def reducing_nothing(engine: Any) -> Iterator[None]:
    """The end of `coalesce_grad_reduction` does not reduce what was held back."""

    def nothing(*_: Any) -> None:
        return None

    with overriding(engine, _flush_coalesced_reduction_zero12=nothing, _flush_coalesced_reduction_zero3=nothing):
        yield


def end_step(engine: Any) -> None:
    """After an error inside DeepSpeed's step, which is over then, also where DeepSpeed remembers that it began."""
    if hasattr(engine, "_running_engine_step"):
        engine._running_engine_step = False


def is_backward_of_an_engine() -> bool:
    """Whether DeepSpeed knows the backward under way as one that an engine began; since 0.19.6 it does."""
    try:
        from deepspeed.runtime.engine import _ENGINE_BACKWARD_GRAPH_TRACKER as TRACKER
    except ImportError:
        return False
    return bool(TRACKER.is_current_graph_registered())


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


def marks_latest_later(engine: Any) -> bool:
    """Whether a checkpoint is written in the background, and becomes the latest one when that is done."""
    decoupled = getattr(engine.checkpoint_engine, "is_decoupled", None)
    return bool(decoupled()) if decoupled is not None else False


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
