"""Where DeepSpeed keeps parameters, gradients and optimizer state, for every optimizer wrapper of 0.18 and 0.19.

All private names of DeepSpeed that the worker touches are in this file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ds_accum.compare.worker.engines.protocol import Held

__all__ = ["held", "master_parameters", "parameter_sizes"]


def master_parameters(engine: Any) -> Iterator[tuple[Any, Tensor]]:
    """Each trainable parameter with its complete values as the optimizer holds them, one after the other.

    All ranks iterate together. fp32 copies where the model computes in 16 bits, the model's own otherwise.
    """
    optimizer, kind = engine.optimizer, type(engine.optimizer).__name__
    trainable = [parameter for parameter in engine.module.parameters() if parameter.requires_grad]
    if kind == "FP16_Optimizer":
        for parameters, flat in zip(optimizer.fp16_groups, optimizer.fp32_groups_flat, strict=True):
            yield from _split(parameters, flat)
    elif kind == "FP16_UnfusedOptimizer":
        for parameters, masters in zip(optimizer.fp16_groups, optimizer.fp32_groups, strict=True):
            yield from zip(parameters, masters, strict=True)
    elif engine.zero_optimization_stage() == 0:
        yield from ((parameter, parameter) for parameter in trainable)
    elif getattr(optimizer, "round_robin_gradients", False):
        # DeepSpeed's own look at one parameter finds the values of another one there.
        yield from _from_partitions(optimizer)
    else:
        from deepspeed.utils import safe_get_full_fp32_param

        for parameter in trainable:
            yield parameter, safe_get_full_fp32_param(parameter)


def _split(parameters: list[Any], flat: Tensor) -> Iterator[tuple[Any, Tensor]]:
    offset = 0
    for parameter in parameters:
        yield parameter, flat[offset : offset + parameter.numel()].view(parameter.shape)
        offset += parameter.numel()


def _from_partitions(optimizer: Any) -> Iterator[tuple[Any, Tensor]]:
    """ZeRO-1/2: each rank's slice of the flat fp32 parameters, put together and cut again."""
    for index, parameters in enumerate(optimizer.round_robin_bit16_groups):
        group = optimizer.real_dp_process_group[index]
        part = optimizer.single_partition_of_fp32_groups[index].detach().to(parameters[0].device)
        parts = [torch.empty_like(part) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, part.contiguous(), group=group)
        whole = torch.cat(parts)
        offsets = getattr(optimizer, "round_robin_bit16_offsets", None)
        if offsets is None:
            yield from _split(parameters, whole)
            continue
        for parameter, offset in zip(parameters, offsets[index], strict=True):
            yield parameter, whole[offset : offset + parameter.numel()].view(parameter.shape)


# --- memory -----------------------------------------------------------------------------------------------------------

_GRADIENTS = re.compile(r"grad(?!_acc_hook)|ipg_bucket")
"""Attributes of DeepSpeed's optimizers in which gradients are kept: partitions, buckets, buffers of accumulation."""


def parameter_sizes(model: nn.Module) -> list[int]:
    """Elements of each trainable parameter, those that ZeRO-3 has cut into parts included."""
    return [
        int(getattr(parameter, "ds_numel", parameter.numel()))
        for parameter in model.parameters()
        if parameter.requires_grad
    ]


def held(engine: Any) -> Held:
    """What a rank holds: parameters (ZeRO-3: its part of them), gradients wherever they are, state and fp32 copies."""
    wrapper = engine.optimizer
    inner = getattr(wrapper, "optimizer", wrapper)
    parameters = [
        part
        for parameter in engine.module.parameters()
        for part in (parameter.data, getattr(parameter, "ds_tensor", None))
        if isinstance(part, Tensor)
    ]
    groups = getattr(inner, "param_groups", [])
    copies = [parameter for group in groups for parameter in group["params"]]
    for name in ("single_partition_of_fp32_groups", "fp32_partitioned_groups_flat", "fp32_groups_flat_partition"):
        copies += _tensors(getattr(wrapper, name, []))
    state = _tensors(dict(getattr(inner, "state", {})))
    gradients = [tensor.grad for tensor in [*engine.module.parameters(), *copies] if tensor.grad is not None]
    for name, value in vars(wrapper).items():
        if _GRADIENTS.search(name):
            gradients += _tensors(value)
    model = {part.untyped_storage().data_ptr() for part in parameters}
    return Held(
        parameters=parameters,
        gradients=[tensor for tensor in gradients if tensor.untyped_storage().data_ptr() not in model],
        optimizer_state=[tensor for tensor in [*copies, *state] if tensor.untyped_storage().data_ptr() not in model],
    )


def _tensors(value: Any) -> list[Tensor]:
    """All tensors in nested containers and in DeepSpeed's own small records, parameters of the model apart."""
    if isinstance(value, Tensor):
        return [value.detach()]
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in _tensors(item)]
    if isinstance(value, list | tuple | set):
        return [tensor for item in value for tensor in _tensors(item)]
    if type(value).__name__ == "IPGBucket":
        return _tensors([getattr(value, name, None) for name in ("buffer", "grads")])
    return []
