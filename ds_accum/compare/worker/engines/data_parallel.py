"""torch's own data parallelism, DDP and FSDP2, as it is usually written.

    gradient = mean over ranks and micro-batches of each micro-batch's mean loss

That is a mean of means, as stock DeepSpeed's. `deferred` synchronizes once a window, else every micro-batch does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ds_accum.compare.spec import Variant
from ds_accum.compare.worker.engines.protocol import (
    DTYPES,
    Context,
    Held,
    WindowOutcome,
    clip_coefficient,
    moved,
    optimizer_of,
)
from ds_accum.compare.worker.watch import Watch
from ds_accum.compare.worker.workloads import MicroBatch
from ds_accum.errors import UsageError

__all__ = ["DistributedDataParallelEngine", "FullyShardedEngine"]


class _DataParallelEngine:
    """What both have in common: the loop, the optimizer, clipping."""

    model: Any
    optimizer: torch.optim.Optimizer

    def __init__(self, variant: Variant, context: Context, *, deferred: bool) -> None:
        if context.spec.dtype == "fp16":
            raise UsageError(
                f"{variant.engine} does not train in fp16 here, because torch leaves scaling the loss to the loop",
                remedy="compare in bf16 or fp32, or leave out the variants that are not DeepSpeed's",
            )
        self.name = variant.name
        self.training = context.training()
        self.training.model.to(context.ranks.device)
        self.deferred = deferred
        self.dtype = DTYPES[context.spec.dtype]
        self.clipping = context.spec.gradient_clipping
        self.device = context.ranks.device
        self._here = context.ranks.is_first

    def train_window(
        self, batches: Sequence[MicroBatch], watch: Watch, after: Callable[[int], None] | None = None
    ) -> WindowOutcome:
        loss_sum = torch.zeros((), dtype=torch.float64, device=self.device)
        for index, batch in enumerate(batches):
            last = index == len(batches) - 1
            with self.synchronizing(last or not self.deferred):
                watch.enter("forward", boundary=last)
                loss = torch.nan_to_num(self.loss(moved(batch.inputs, self.device)))
                watch.enter("backward", boundary=last)
                torch.autograd.backward(loss / len(batches))
            loss_sum += loss.detach().double() * batch.num_tokens
            if after is not None and not last:
                after(index)
        watch.enter("update", boundary=True)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.clipping) if self.clipping else None
        self.optimizer.step()
        self.optimizer.zero_grad()
        watch.leave()
        taken = None if norm is None else float(_complete(norm))
        return WindowOutcome(
            loss_sum=float(loss_sum),
            num_tokens=sum(batch.num_tokens for batch in batches),
            grad_norm=taken,
            clip_coefficient=clip_coefficient(taken, self.clipping),
            applied=True,
        )

    def synchronizing(self, now: bool) -> contextlib.AbstractContextManager[Any]:
        """Whether the backward inside reduces gradients."""
        raise NotImplementedError

    def loss(self, inputs: Mapping[str, Any]) -> Tensor:
        return self.training.loss(self.model, inputs)

    def parameters(self) -> Mapping[str, Tensor] | None:
        complete = {
            name.removeprefix("module."): _complete(parameter.detach()).double().cpu().clone()
            for name, parameter in self.model.named_parameters()
            if parameter.requires_grad
        }
        return complete if self._here else None

    def held(self) -> Held:
        parameters = list(self.model.parameters())
        state = [value for values in self.optimizer.state.values() for value in values.values()]
        return Held(
            parameters=[_local(parameter) for parameter in parameters],
            gradients=[_local(parameter.grad) for parameter in parameters if parameter.grad is not None],
            optimizer_state=[_local(value) for value in state if torch.is_tensor(value)],
        )

    def close(self) -> None:
        self.optimizer.zero_grad()


class DistributedDataParallelEngine(_DataParallelEngine):
    """DDP; deferred by `no_sync`. bf16 is autocast, with parameters in fp32."""

    def __init__(self, variant: Variant, context: Context, *, deferred: bool) -> None:
        super().__init__(variant, context, deferred=deferred)
        self.model = DistributedDataParallel(self.training.model)
        self.optimizer = optimizer_of(context.spec, self.model)

    def synchronizing(self, now: bool) -> contextlib.AbstractContextManager[Any]:
        if now:
            return contextlib.nullcontext()
        context: contextlib.AbstractContextManager[Any] = self.model.no_sync()
        return context

    def loss(self, inputs: Mapping[str, Any]) -> Tensor:
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.dtype == torch.bfloat16):
            return super().loss(inputs)


class FullyShardedEngine(_DataParallelEngine):
    """FSDP2, `fully_shard` on every block and the model; deferred by `set_requires_gradient_sync`.

    bf16 is its mixed precision: parameters gathered in bf16, gradients reduced and parameters kept in fp32.
    """

    groups: tuple[int, ...]

    def __init__(self, variant: Variant, context: Context, *, deferred: bool) -> None:
        super().__init__(variant, context, deferred=deferred)
        try:
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        except ImportError as error:
            raise UsageError(
                f"torch {torch.__version__} has no FSDP2", remedy="update torch to 2.6 or later, or leave out fsdp"
            ) from error
        mesh = init_device_mesh(self.device.type, (context.ranks.world_size,))
        policy = MixedPrecisionPolicy()
        if self.dtype == torch.bfloat16:
            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        self.model = self.training.model
        self.groups = _groups(self.model, context.ranks.world_size)
        for block in _blocks(self.model):
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(self.model, mesh=mesh, mp_policy=policy)
        self.optimizer = optimizer_of(context.spec, self.model)

    def synchronizing(self, now: bool) -> contextlib.AbstractContextManager[Any]:
        self.model.set_requires_gradient_sync(now)
        return contextlib.nullcontext()


def _groups(model: nn.Module, world_size: int) -> tuple[int, ...]:
    """Elements that a rank holds of each group that FSDP gathers as one: the blocks', then what is left, the root's.

    Each parameter is cut along its first dimension, padded to a multiple of the ranks.
    """
    inside: set[int] = set()
    groups = []
    for part in (*_blocks(model), model):
        own = [parameter for parameter in part.parameters() if id(parameter) not in inside]
        inside |= set(map(id, own))
        groups.append(sum(-(-len(tensor) // world_size) * (tensor.numel() // len(tensor)) for tensor in own))
    return tuple(groups)


def _blocks(model: nn.Module) -> list[nn.Module]:
    """The repeated parts of a model: the members of its lists of modules, outermost ones only."""
    blocks: list[nn.Module] = []
    inside: set[int] = set()
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and id(module) not in inside:
            blocks += list(module)
            inside |= {id(part) for part in module.modules()}
    return blocks


def _complete(tensor: Any) -> Tensor:
    whole: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return whole


def _local(tensor: Any) -> Tensor:
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part
