"""A case run on the engine, and what came out of it, beside the truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from cases import Case, case_of, samples_of
from model import batch_of, initial_model, num_tokens
from optimizers import optimizer_of
from torch import Tensor
from truth import Normalization, Truth, kept_truth


def run(arguments: dict[str, Any], rank: int, folder: Path) -> dict[str, Any]:
    """A case as a job: trains it on this rank; rank 0 compares it with the truth as well."""
    case = case_of(arguments)
    engine = start(case)
    parameters, steps = [], []
    for window in range(len(case.windows)):
        seen = train_window(engine, case, window, rank)
        parameters.append(master_parameters(engine, case))
        steps.append(_step(engine, case, seen))
    result = {
        "optimizer": type(engine.optimizer).__name__,
        "steps": steps,
        "skipped_steps": engine.skipped_steps,
        "global_steps": engine.global_steps,
        # The same on all ranks, or the replicas have parted.
        "sum_of_parameters": float(parameters[-1].sum()),
    }
    return result if rank else result | _beside_the_truth(case, steps, parameters, folder.parent)


def _beside_the_truth(case: Case, steps: list[dict[str, Any]], parameters: list[Tensor], kept: Path) -> dict[str, Any]:
    # Stock DeepSpeed takes the mean of means: it is asked how far it is from that, and from the token mean.
    names: tuple[Normalization, ...] = ("token", "micro_batch") if case.engine == "stock" else ("token",)
    truths = {name: kept_truth(case, kept, name) for name in names}
    return {
        "error": {name: update_errors(parameters, truth) for name, truth in truths.items()},
        "norm_error": {
            name: [_relative(step["grad_norm"], norm) for step, norm in zip(steps, truth.norms, strict=True)]
            for name, truth in truths.items()
        },
        "true_tokens": truths["token"].tokens,
        "true_losses": truths["token"].losses,
        "true_norms": truths["token"].norms,
    }


def _relative(found: float | None, true: float) -> float | None:
    return None if found is None else abs(found / true - 1)


# --- the engine -------------------------------------------------------------------------------------------------------


def start(case: Case, *, engine: str | None = None) -> Any:
    """The engine of a case; `engine` overrides which of the two it is."""
    if engine is not None:
        case = replace(case, engine=engine)  # type: ignore[arg-type]
    model = initial_model(case)
    optimizer = optimizer_of(case.optimizer, model)
    if case.engine == "stock":
        return deepspeed.initialize(model=model, optimizer=optimizer, config=config_of(case))[0]
    import ds_accum

    counter = (lambda labels, **_: num_tokens(case, labels)) if case.counts == "function" else None
    return ds_accum.initialize(model=model, optimizer=optimizer, config=config_of(case), token_counter=counter)[0]


def config_of(case: Case) -> dict[str, Any]:
    """DeepSpeed's config of a case, with the `ds_accum` block."""
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": case.micro_batch_size,
        "gradient_accumulation_steps": case.accumulation,
        "gradient_clipping": case.clipping,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        # Buckets of the default size are gigabytes on a CPU.
        "zero_optimization": {"stage": case.stage, "reduce_bucket_size": 200_000, "allgather_bucket_size": 200_000},
    }
    if case.dtype == "bf16":
        config["bf16"] = {"enabled": True}
    if case.dtype == "fp16":
        # The scale grows after every second good step.
        config["fp16"] = {"enabled": True, "initial_scale_power": 8, "loss_scale_window": 2, "hysteresis": 1}
    if case.accumulate == "unmanaged":
        config["managed_gradient_accumulation"] = False
    if case.accumulate in ("no_sync", "unmanaged"):
        config["zero_optimization"]["overlap_comm"] = False
    block: dict[str, Any] = dict(case.block)
    if case.loss == "sum":
        block["loss_reduction"] = "sum"
    if case.counts in ("labels", "shifted labels"):
        block["counting"] = {"shift": case.shift}
    if case.engine == "ours" and block:
        config["ds_accum"] = block
    return _merged(config, case.config)


def _merged(into: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(into)
    for key, value in values.items():
        held = merged.get(key)
        merged[key] = _merged(held, value) if isinstance(value, Mapping) and isinstance(held, Mapping) else value
    return merged


# --- the loop ---------------------------------------------------------------------------------------------------------


def train_window(engine: Any, case: Case, window: int, rank: int) -> Tensor:
    """One accumulation window. Returns the window's summed loss and counted tokens over all ranks, as seen here: [2]."""
    count = case.windows[window]
    batches = [batch_of(case, window, samples_of(case, window, index, rank)) for index in range(count)]
    if case.accumulate == "resize" and count != engine.gradient_accumulation_steps():
        engine.set_train_batch_size(case.micro_batch_size * count * case.ranks)
    if case.look_ahead:
        engine.begin_window(sum(num_tokens(case, batch["labels"]) for batch in batches))
    seen = torch.zeros(2, dtype=torch.float64)

    def backward(index: int) -> None:
        seen.add_(_backward(engine, case, batches[index], overflow=window == case.overflows_in and index == 1))

    _ACCUMULATE[case.accumulate](engine, count, backward)
    dist.all_reduce(seen)
    return seen


def _backward(engine: Any, case: Case, batch: dict[str, Tensor], *, overflow: bool) -> Tensor:
    loss = engine(**batch, overflow=overflow)
    tokens = num_tokens(case, batch["labels"])
    counted = {} if case.counts != "given" else {"num_tokens": tokens}
    if case.engine == "stock":
        engine.backward(loss if tokens else torch.nan_to_num(loss))
    elif case.backward == "engine":
        engine.backward(loss, **counted)
    elif case.backward == "scaled loss":
        engine.scale(loss, **counted).backward()
    else:
        loss.backward()
    value = float(loss.detach()) if tokens else 0.0
    return torch.tensor([value * (tokens if case.loss == "mean" else 1), tokens], dtype=torch.float64)


Backward = Callable[[int], None]


def _counted(engine: Any, count: int, backward: Backward) -> None:
    for index in range(count):
        backward(index)
        engine.step()


def _flushed(engine: Any, count: int, backward: Backward) -> None:
    _counted(engine, count, backward)
    if count < engine.gradient_accumulation_steps():
        engine.flush()


def _declared(engine: Any, count: int, backward: Backward) -> None:
    for index in range(count):
        engine.set_gradient_accumulation_boundary(index == count - 1)
        backward(index)
        engine.step()


def _without_sync(engine: Any, count: int, backward: Backward) -> None:
    engine.set_gradient_accumulation_boundary(False)
    with engine.no_sync():
        for index in range(count - 1):
            backward(index)
    engine.set_gradient_accumulation_boundary(True)
    backward(count - 1)
    engine.step()


def _coalesced(engine: Any, count: int, backward: Backward) -> None:
    with engine.coalesce_grad_reduction():
        for index in range(count):
            backward(index)
    engine.set_gradient_accumulation_boundary(True)
    engine.step()


def _unmanaged(engine: Any, count: int, backward: Backward) -> None:
    for index in range(count):
        backward(index)
    engine.step()


_ACCUMULATE: dict[str, Callable[[Any, int, Backward], None]] = {
    "counted": _counted,
    "resize": _counted,
    "flush": _flushed,
    "declared": _declared,
    "no_sync": _without_sync,
    "coalesce": _coalesced,
    "unmanaged": _unmanaged,
}


# --- what came out of it ----------------------------------------------------------------------------------------------


def _step(engine: Any, case: Case, seen: Tensor) -> dict[str, Any]:
    """What the engine says of its last step, and the token mean of the losses that the loop itself saw."""
    summed, tokens = seen.tolist()
    said: dict[str, Any] = {"seen_loss": summed / max(tokens, 1), "loss_scale": loss_scale(engine)}
    if case.engine == "stock":
        return said | {"grad_norm": _number(engine.get_global_grad_norm())}
    report = engine.last_step
    return said | {
        "grad_norm": _number(report.grad_norm),
        "num_tokens": report.num_tokens,
        "loss": _number(report.loss),
        "clip_coefficient": _number(report.clip_coefficient),
        "applied": report.applied,
        "skipped_because": None if report.skipped_because is None else str(report.skipped_because),
        "micro_batches": report.micro_batches,
    }


def loss_scale(engine: Any) -> float | None:
    """What losses are scaled by now, None where nothing scales."""
    optimizer = engine.optimizer
    held = getattr(optimizer, "loss_scale_config", None)
    return _number(
        held.cur_scale if held is not None else getattr(optimizer, "cur_scale", None) or _zero_scale(optimizer)
    )


def _zero_scale(optimizer: Any) -> Any:
    scaler = getattr(optimizer, "loss_scaler", None)
    return getattr(scaler, "cur_scale", None)


def update_errors(parameters: list[Tensor], truth: Truth) -> list[float]:
    """After each window: |p - truth| / |truth - initial|, over all parameters."""
    return [
        float((found - true).norm() / (true - truth.initial).norm())
        for found, true in zip(parameters, truth.parameters, strict=True)
    ]


def master_parameters(engine: Any, case: Case) -> Tensor:
    """The fp32 parameters that the optimizer updates, whole, in the model's order, in float64: [P]. All ranks call it."""
    optimizer, kind = engine.optimizer, type(engine.optimizer).__name__
    if kind == "FP16_Optimizer":
        held = [
            group.flatten()[: sum(p.numel() for p in engine.module.parameters())]
            for group in optimizer.fp32_groups_flat
        ]
    elif kind == "FP16_UnfusedOptimizer":
        held = [parameter for group in optimizer.fp32_groups for parameter in group]
    elif case.stage == 0 or case.config.get("zero_optimization", {}).get("round_robin_gradients"):
        # With round_robin_gradients, DeepSpeed's own look at a parameter finds another one; in fp32 the module has them.
        assert case.dtype == "fp32"
        held = list(engine.module.parameters())
    else:
        from deepspeed.utils import safe_get_full_fp32_param

        held = [safe_get_full_fp32_param(parameter) for parameter in engine.module.parameters()]
    return torch.cat([tensor.detach().double().flatten() for tensor in held])


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
