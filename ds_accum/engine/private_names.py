"""Every private or undocumented name of DeepSpeed that the engine touches: whose it is, since when, what for.

    missing_names()     # those that the installed DeepSpeed should have and has not

`since` is the release since which a name is what it is in 0.19.8, 0.18.3 standing for that one and all before it;
`until` the last that has it. `deepspeed_private` holds what is done with them where releases differ.
"""

from __future__ import annotations

import dis
import importlib
import inspect
from collections.abc import Iterator
from functools import cache
from types import CodeType
from typing import Any, NamedTuple

__all__ = ["NEWEST", "OLDEST", "PRIVATE_NAMES", "PrivateName", "Version", "missing_names"]

Version = tuple[int, int, int]

OLDEST: Version = (0, 18, 3)
NEWEST: Version = (0, 19, 8)


class PrivateName(NamedTuple):
    """One name. `owner` is "module" or "module:class"; a parameter is named `method(parameter)`."""

    owner: str
    name: str
    why: str
    since: Version = OLDEST
    until: Version | None = None

    def __str__(self) -> str:
        return f"{self.owner}{'.' if ':' in self.owner else ':'}{self.name}"


_ENGINE = "deepspeed.runtime.engine:DeepSpeedEngine"
_BASE = "deepspeed.runtime.base_optimizer:ZeROOptimizer"
_ZERO_12 = "deepspeed.runtime.zero.stage_1_and_2:DeepSpeedZeroOptimizer"
_ZERO_3 = "deepspeed.runtime.zero.stage3:DeepSpeedZeroOptimizer_Stage3"
_FUSED = "deepspeed.runtime.fp16.fused_optimizer:FP16_Optimizer"
_UNFUSED = "deepspeed.runtime.fp16.unfused_optimizer:FP16_UnfusedOptimizer"
_SCALE = "deepspeed.runtime.fp16.loss_scaler:LossScaleConfig"
_BF16 = "deepspeed.runtime.bf16_optimizer:BF16_Optimizer"


def _each(owners: tuple[str, ...], name: str, why: str, *since_until: Version) -> Iterator[PrivateName]:
    for owner in owners:
        yield PrivateName(owner, name, why, *since_until)


PRIVATE_NAMES: tuple[PrivateName, ...] = (
    # --- modules ---
    PrivateName("deepspeed.runtime.engine", "DeepSpeedEngine", "the class that the engine extends"),
    PrivateName(
        "deepspeed.runtime.engine",
        "_ENGINE_BACKWARD_GRAPH_TRACKER",
        "tells a backward of another engine's from a bare one",
        (0, 19, 6),
    ),
    PrivateName("deepspeed.constants", "default_pg_timeout", "the watchdog speaks before a process group fails"),
    PrivateName("deepspeed.runtime.pipe.engine", "PipelineEngine", "refused"),
    PrivateName("deepspeed.runtime.base_optimizer", "DeepSpeedOptimizer", "tells wrappers from torch's optimizers"),
    PrivateName("deepspeed.runtime.bf16_optimizer", "BF16_Optimizer", "which wrapper it is"),
    PrivateName("deepspeed.runtime.fp16.fused_optimizer", "FP16_Optimizer", "which wrapper it is"),
    PrivateName("deepspeed.runtime.fp16.unfused_optimizer", "FP16_UnfusedOptimizer", "which wrapper it is"),
    PrivateName("deepspeed.runtime.zero.stage_1_and_2", "DeepSpeedZeroOptimizer", "which wrapper it is"),
    PrivateName("deepspeed.runtime.zero.stage3", "DeepSpeedZeroOptimizer_Stage3", "which wrapper it is"),
    PrivateName("deepspeed.runtime.utils", "DummyOptim", "an engine without an optimizer is refused"),
    PrivateName("deepspeed.runtime.utils", "clip_grad_norm_", "clips a plain optimizer's gradients and says the norm"),
    PrivateName("deepspeed.runtime", "utils", "looked at for is_invalid_grad_norm"),
    PrivateName(
        "deepspeed.runtime.utils",
        "is_invalid_grad_norm",
        "its presence tells that optimizers look at the norm before they use it",
        (0, 19, 8),
    ),
    PrivateName("deepspeed.utils", "groups", "the group that gradients are reduced over"),
    PrivateName("deepspeed.utils.groups", "_get_sequence_data_parallel_group", "the group of the counts"),
    # --- the engine: what it holds ---
    PrivateName(_ENGINE, "_config", "the config as DeepSpeed read it"),
    PrivateName("deepspeed.runtime.config:DeepSpeedConfig", "_param_dict", "the same, with the ds_accum block"),
    PrivateName(_ENGINE, "optimizer", "the wrapper that carries the late factor"),
    PrivateName(_ENGINE, "basic_optimizer", "the optimizer inside, whose updates are counted"),
    PrivateName(_ENGINE, "module", "the model: its forward's parameters, its mode"),
    PrivateName(_ENGINE, "mpu", "given to the clipping of a plain optimizer"),
    PrivateName(_ENGINE, "device", "where counts are kept"),
    PrivateName(_ENGINE, "monitor", "reports are written to it"),
    PrivateName(_ENGINE, "global_rank", "who writes the log"),
    PrivateName(_ENGINE, "global_steps", "the number of the step, in reports and errors"),
    PrivateName(_ENGINE, "global_samples", "what monitors plot against"),
    PrivateName(_ENGINE, "skipped_steps", "reported"),
    PrivateName(_ENGINE, "micro_steps", "moved to a window's beginning by flush"),
    PrivateName(_ENGINE, "has_moe_layers", "refused"),
    PrivateName(_ENGINE, "inside_no_sync_ctxt", "whether backwards reduce now"),
    PrivateName(_ENGINE, "sequence_parallel_size", "a part of the divisor"),
    PrivateName(_ENGINE, "gradient_average", "whether there is a divisor"),
    PrivateName(_ENGINE, "_is_gradient_accumulation_boundary", "set by flush, read by a guard"),
    PrivateName(_ENGINE, "_running_engine_backward", "tells loss.backward() from engine.backward()"),
    PrivateName(_ENGINE, "_running_engine_step", "reset where an error ends a step", (0, 19, 4)),
    PrivateName(_ENGINE, "_manual_backward_expected", "says that a bare loss is scaled"),
    PrivateName(_ENGINE, "_support_torch_style_backward", "refuses scale() where only engine.backward() works"),
    PrivateName(_ENGINE, "_global_grad_norm", "the norm, which a plain optimizer leaves out"),
    # --- the engine: what it is asked ---
    PrivateName(_ENGINE, "zero_optimization", "whether gradients are kept by ZeRO"),
    PrivateName(_ENGINE, "zero_optimization_stage", "which ZeRO it is"),
    PrivateName(_ENGINE, "train_micro_batch_size_per_gpu", "whether it changes inside a window"),
    PrivateName(_ENGINE, "zero_optimization_partition_gradients", "whether each backward reduces"),
    PrivateName(_ENGINE, "zero_reduce_scatter", "which divisor ZeRO-3 has"),
    PrivateName(_ENGINE, "postscale_gradients", "which divisor ZeRO-3 has; sparse gradients"),
    PrivateName(_ENGINE, "gradient_predivide_factor", "which divisor ZeRO-3 has; sparse gradients"),
    PrivateName(_ENGINE, "gradient_clipping", "whether and to what gradients are clipped"),
    PrivateName(_ENGINE, "gradient_accumulation_steps", "the micro-batches of a window"),
    PrivateName(_ENGINE, "get_global_grad_norm", "the norm"),
    PrivateName(_ENGINE, "fp16_enabled", "whether range matters to the constant"),
    PrivateName(_ENGINE, "is_gradient_accumulation_boundary", "whether this backward is the last"),
    PrivateName(_ENGINE, "autotp_size", "AutoTP is refused"),
    PrivateName(
        _ENGINE,
        "managed_gradient_accumulation",
        "whether the engine counts to the boundary itself; before, it always did",
        (0, 19, 4),
    ),
    # --- the engine: what is overridden ---
    PrivateName(_ENGINE, "forward", "counts tokens"),
    PrivateName(_ENGINE, "backward", "propagates the seed"),
    PrivateName(_ENGINE, "backward(retain_graph)", "passed on"),
    PrivateName(
        _ENGINE, "backward(scale_wrt_gas)", "passed on; the seed is the gradient whether or not the loss is divided"
    ),
    PrivateName(_ENGINE, "scale", "the same, for loss.backward()"),
    PrivateName(_ENGINE, "step", "watched; taken between micro-batches of a coalesced window"),
    PrivateName(_ENGINE, "no_sync", "refused where it does not work"),
    PrivateName(_ENGINE, "coalesce_grad_reduction", '"reduction": "boundary"', (0, 19, 1)),
    PrivateName(_ENGINE, "_flush_coalesced_reduction_zero12", "left out for a window that is given up", (0, 19, 1)),
    PrivateName(_ENGINE, "_flush_coalesced_reduction_zero3", "the same, for ZeRO-3", (0, 19, 1)),
    PrivateName(_ENGINE, "checkpoint_engine", "whether a checkpoint is written in the background"),
    PrivateName(_ENGINE, "zero_grad", "a misuse inside a window"),
    PrivateName(_ENGINE, "set_train_batch_size", "a misuse inside a window"),
    PrivateName(_ENGINE, "set_train_micro_batch_size", "a misuse inside a window"),
    PrivateName(_ENGINE, "save_checkpoint", "the window's constant goes along"),
    PrivateName(_ENGINE, "save_checkpoint(client_state)", "where it goes"),
    PrivateName(_ENGINE, "load_checkpoint", "the window's constant comes back"),
    PrivateName(_ENGINE, "destroy", "ends the watchdog and the log"),
    PrivateName(_ENGINE, "allreduce_gradients", "noted; called by flush"),
    PrivateName(_ENGINE, "allreduce_bucket(dp_world_size)", "carries the late factor without ZeRO"),
    PrivateName(_ENGINE, "sparse_allreduce(dp_world_size)", "the same, for sparse gradients"),
    PrivateName(_ENGINE, "clip_fp32_gradients", "keeps the norm of a plain optimizer"),
    PrivateName(_ENGINE, "_take_model_step", "around it the late factor is carried"),
    PrivateName(_ENGINE, "_backward_prologue", "a bare loss.backward() gets its seed"),
    PrivateName(_ENGINE, "_backward_prologue_per_tensor", "no division by the accumulation steps"),
    PrivateName(_ENGINE, "_backward_epilogue", "a backward is complete"),
    # --- ZeRO ---
    *_each((_ZERO_12, _ZERO_3), "loss_scale", "carries the late factor"),
    *_each((_ZERO_12, _ZERO_3), "custom_loss_scaler", "makes it the external scale"),
    *_each((_ZERO_12, _ZERO_3), "external_loss_scale", "the loss scale over the late factor"),
    *_each((_ZERO_12, _ZERO_3), "overflow", "what makes a step be skipped"),
    *_each((_ZERO_12, _ZERO_3), "check_overflow", "overflows at will, to skip a step"),
    *_each((_ZERO_12, _ZERO_3), "_update_scale", "does not move for a step skipped by the engine"),
    *_each((_ZERO_12, _ZERO_3), "_global_grad_norm", "the norm"),
    *_each((_ZERO_12, _ZERO_3), "step", "the beginning of a step is noted"),
    *_each((_ZERO_12, _ZERO_3), "zero_grad", "noted"),
    *_each((_ZERO_12, _ZERO_3), "is_gradient_accumulation_boundary", "told by flush that it is"),
    *_each((_ZERO_12, _ZERO_3), "dtype", "ZeRO-3 looks for an overflow in fp16 alone"),
    PrivateName(_ZERO_12, "check_grad_overflow", "whether it looks for an overflow"),
    PrivateName(_ZERO_12, "scaled_global_norm", "the norm of the scaled gradient"),
    PrivateName(_ZERO_12, "overlap_comm", "no_sync fails with it"),
    PrivateName(_ZERO_12, "cpu_offload", "whether gradients leave for the CPU"),
    PrivateName(_ZERO_12, "compute_grad_norm", "whether it takes a norm at all", (0, 19, 7)),
    PrivateName(_ZERO_12, "bit16_groups", "how many updates a step has; flush without finalize_..._boundary"),
    PrivateName(_ZERO_12, "all_grad_tensors", "the same"),
    PrivateName(_ZERO_12, "averaged_gradients", "the same"),
    PrivateName(_ZERO_12, "params_in_partition", "the same"),
    PrivateName(_ZERO_12, "first_offset", "the same"),
    PrivateName(_ZERO_12, "partition_size", "the same"),
    PrivateName(_ZERO_12, "gradient_accumulation_dtype", "the same"),
    PrivateName(_ZERO_12, "device", "the same"),
    PrivateName(_ZERO_12, "get_flat_partition(return_tensor_list)", "the same"),
    PrivateName(_ZERO_3, "_overflow_check_and_loss_scale_update", "where it looks for an overflow"),
    PrivateName(_ZERO_3, "inf_or_nan_tracker", "emptied when a step is skipped"),
    PrivateName(_ZERO_3, "_get_norm_groups", "the event of a norm"),
    PrivateName(_ZERO_3, "fp16_groups", "how many updates a step has"),
    PrivateName(_ZERO_3, "backup_optimizer", "the updates of what is not offloaded"),
    PrivateName(_ZERO_3, "offload_optimizer", "whether gradients leave for the CPU"),
    *_each((_ZERO_12, _ZERO_3), "_epilogue_ran_this_backward", "a backward that no forward came before", (0, 18, 5)),
    *_each((_ZERO_12, _ZERO_3), "clear_backward_seen_flag", "the same", (0, 18, 5)),
    *_each((_ZERO_12, _ZERO_3), "set_gradient_accumulation_boundary", "told by flush that it is", (0, 19, 5)),
    *_each((_ZERO_12, _ZERO_3), "finalize_gradient_accumulation_boundary", "flush", (0, 19, 4)),
    # --- the 16-bit wrappers ---
    *_each((_FUSED, _UNFUSED), "cur_scale", "carries the late factor", OLDEST, (0, 18, 5)),
    *_each((_FUSED, _UNFUSED), "loss_scale_config", "holds cur_scale", (0, 18, 6)),
    PrivateName(_SCALE, "cur_scale", "carries the late factor", (0, 18, 6)),
    PrivateName(_FUSED, "use_grad_scaling", "an overflow in bf16 is heeded", OLDEST, (0, 18, 5)),
    PrivateName(_SCALE, "use_grad_scaling", "an overflow in bf16 is heeded", (0, 18, 6)),
    *_each((_FUSED, _UNFUSED), "_update_scale", "moves the scale only once it has been used"),
    *_each((_FUSED, _UNFUSED), "step", "the beginning of a step is noted"),
    *_each((_FUSED, _UNFUSED), "overflow", "whether the step was skipped"),
    *_each((_FUSED, _UNFUSED), "overflow_checker", "overflows at will, to skip a step"),
    *_each((_FUSED, _UNFUSED), "_global_grad_norm", "the norm"),
    *_each((_FUSED, _UNFUSED), "unscale_and_clip_grads", "the event of a norm"),
    *_each((_FUSED, _UNFUSED), "zero_grad", "noted"),
    *_each((_FUSED, _UNFUSED), "optimizer", "its state after the constructor's step"),
    *_each((_FUSED, _UNFUSED), "fp16_groups", "their gradients; what the master weights are made of again"),
    PrivateName(_FUSED, "fp16_groups_flat", "what the master weights are made of again"),
    PrivateName(_FUSED, "fp32_groups_flat", "the master weights"),
    PrivateName(_UNFUSED, "fp32_groups", "the master weights"),
    # --- BF16_Optimizer ---
    PrivateName(_BF16, "step", "left out, to skip a step"),
    PrivateName(_BF16, "get_grads_for_norm", "the event of a norm"),
    PrivateName(_BF16, "get_grads_for_norm(for_clipping)", "tells the norm from the clipping"),
    PrivateName(_BF16, "clear_hp_grads", "drops gradients"),
    PrivateName(_BF16, "clear_lp_grads", "drops gradients"),
    PrivateName(_BF16, "zero_grad", "noted"),
    PrivateName(_BF16, "_global_grad_norm", "the norm"),
)


@cache
def missing_names() -> tuple[PrivateName, ...]:
    """The names that the installed release should have and has not; a release newer than all known should have all."""
    import deepspeed

    version = (deepspeed.__version_major__, deepspeed.__version_minor__, deepspeed.__version_patch__)
    return tuple(name for name in PRIVATE_NAMES if _is_expected(name, version) and not is_there(name))


def _is_expected(name: PrivateName, version: Version) -> bool:
    return name.since <= version and (name.until is None or version <= name.until)


def is_there(name: PrivateName) -> bool:
    """Whether the installed DeepSpeed has a name, told without an instance of anything."""
    module_name, _, class_name = name.owner.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError:
        return False
    if not class_name:
        return hasattr(module, name.name)
    owner = getattr(module, class_name, None)
    if owner is None:
        return False
    method, _, parameter = name.name.rstrip(")").partition("(")
    if parameter:
        return hasattr(owner, method) and _takes(getattr(owner, method), parameter)
    return hasattr(owner, name.name) or name.name in getattr(owner, "__annotations__", ()) or _is_set(owner, name.name)


def _takes(method: Any, parameter: str) -> bool:
    code = _plain(method).__code__
    return parameter in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


_STORE, _EXTENDED = dis.opmap["STORE_ATTR"], dis.opmap["EXTENDED_ARG"]


def _is_set(owner: type, name: str) -> bool:
    """Whether a method of the class sets an attribute of this name, or puts it into `__dict__`.

    Read off the compiled code, because parsing DeepSpeed's sources takes half a second.
    """
    return any(
        _stores(code, name) or ("__dict__" in code.co_names and name in code.co_consts) for code in _methods_of(owner)
    )


def _stores(code: CodeType, name: str) -> bool:
    if name not in code.co_names:
        return False
    high, low = divmod(code.co_names.index(name), 256)
    instructions = code.co_code
    place = -1
    while (place := instructions.find(bytes((_STORE, low)), place + 1)) >= 0:
        if place % 2 == 0 and (not high or instructions[place - 2 : place] == bytes((_EXTENDED, high))):
            return True
    return False


@cache
def _methods_of(owner: type) -> tuple[CodeType, ...]:
    def codes(code: CodeType) -> Iterator[CodeType]:
        yield code
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from codes(constant)

    functions = (_plain(value) for base in owner.__mro__ for value in vars(base).values())
    return tuple(code for function in functions if function is not None for code in codes(function.__code__))


def _plain(value: Any) -> Any:
    """The function behind a method, a property or a decorator; None for anything else."""
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if not inspect.isfunction(value):
        return None
    # DeepSpeed's own decorators leave no trace but what they enclose.
    for cell in value.__closure__ or ():
        if value.__name__ == "wrapped_fn" and inspect.isfunction(cell.cell_contents):
            return _plain(cell.cell_contents)
    return inspect.unwrap(value)
