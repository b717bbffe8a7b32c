"""Comparisons that never ran, as real ones come out: the same on every machine."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from random import Random
from typing import Any

from ds_accum.compare.estimates import estimated_memory
from ds_accum.compare.formulas import expected_communication
from ds_accum.compare.result import (
    Communication,
    Comparison,
    Memory,
    Misuse,
    ParameterDifference,
    Parity,
    Speed,
    StepResult,
    VariantResult,
)
from ds_accum.compare.spec import EngineKind, RunSpec, Variant

PARAMETERS = 132_352
TENSORS = (4096,) * 32 + (1280,)
FSDP_GROUPS = (24_960, 24_960, 16_256)
TOLERANCE = 1e-5
_TOKENS = (311, 287, 402, 350, 298, 377, 266, 341, 325, 390)
_SECONDS = {"stock": (0.021, 0.026, 0.031, 0.058), "token": (0.0212, 0.0262, 0.0314, 0.0585)}
_BASELINE_SECONDS = {"ddp": 0.019, "ddp-every": 0.028, "fsdp": 0.047, "fsdp-every": 0.055, "single": 0.06}


def variant(engine: EngineKind, stage: int | None = None, accumulation: int = 4, **changes: Any) -> Variant:
    """A row; `changes` are fields of Variant."""
    config: dict[str, Any] = {}
    if stage is not None:
        config = {
            "train_batch_size": 16,
            "train_micro_batch_size_per_gpu": 8 // accumulation,
            "gradient_accumulation_steps": accumulation,
            "gradient_clipping": 1.0,
            "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        }
        if engine == "token":
            config["ds_accum"] = {"counting": {"labels": "labels", "shift": False}}
    values: dict[str, Any] = {
        "name": engine if stage is None else f"zero-{stage} {engine}",
        "engine": engine,
        "stage": stage,
        "micro_batch_size": 8 // accumulation,
        "gradient_accumulation_steps": accumulation,
        "config": config,
    }
    return Variant(**{**values, **changes})


def all_variants(accumulation: int = 4) -> tuple[Variant, ...]:
    """Stages 0 to 3 by both engines, and three baselines."""
    engines: tuple[EngineKind, ...] = ("stock", "token")
    stages = [variant(engine, stage, accumulation) for stage in range(4) for engine in engines]
    return (*stages, variant("ddp", None, accumulation), variant("fsdp", None, accumulation), variant("single"))


def is_exact(row: Variant) -> bool:
    return row.engine in ("token", "single")


def parity(row: Variant, steps: int = 10) -> Parity:
    """Token variants within rounding; the others further off with every step, as means of means are."""
    random = Random(row.name)
    truth = row.engine == "single"
    results = []
    for step in range(1, steps + 1):
        loss = 5.6 - 0.21 * step + (0 if is_exact(row) else 0.012 * math.sin(step))
        error = None if truth else 3e-7 * (1 + random.random()) * math.sqrt(step)
        if error is not None and not is_exact(row):
            error = 0.31 + 0.012 * step + 0.001 * random.random()
        norm = 1.9 - 0.06 * step
        results.append(
            StepResult(
                step=step,
                loss=round(loss, 6),
                num_tokens=_TOKENS[(step - 1) % len(_TOKENS)],
                grad_norm=round(norm, 6),
                clip_coefficient=round(min(1.0, 1 / norm), 6),
                applied=True,
                update_error=error,
            )
        )
    errors = [result.update_error for result in results if result.update_error is not None]
    first = None
    if not is_exact(row):
        first = ParameterDifference(step=1, parameter="blocks.0.attention.qkv.weight", error=0.4187)
    return Parity(
        steps=tuple(results),
        largest_error=max(errors) if errors else None,
        tolerance=TOLERANCE,
        first_difference=first,
    )


def communication(row: Variant, spec: RunSpec) -> Communication:
    """Counts that are what the formula says."""
    expected = expected_communication(row, spec, parameters=PARAMETERS, tensors=TENSORS, fsdp_groups=FSDP_GROUPS)
    return Communication(counted=expected or (), expected=expected)


def memory(row: Variant, spec: RunSpec) -> Memory:
    whole = 4 * PARAMETERS
    stage = row.stage or 0
    shard = 2 if row.engine.startswith("fsdp") else 1
    parameters = whole // (2 if stage == 3 else shard)
    gradients = whole // (2 if stage >= 2 else shard)
    optimizer = whole // (2 if stage >= 1 else shard) * (2 if stage else 1)
    planned = estimated_memory(row, spec, tensors=TENSORS)
    if planned is not None:
        gradients = planned.gradients
    return Memory(
        peak=parameters + gradients + optimizer + 2_900_000 + (90_000 if row.engine == "token" else 0),
        reserved=None,
        parameters=parameters,
        gradients=gradients,
        optimizer_state=optimizer,
        estimate=planned,
    )


def speed(row: Variant, steps: int = 8) -> Speed:
    """Pairs that share what slows the machine down."""
    middle = _BASELINE_SECONDS[row.engine] if row.stage is None else _SECONDS[row.engine][row.stage]
    shared, own = Random(5), Random(row.name)
    times = tuple(round(middle * (0.9 + 0.4 * shared.random()) * (0.96 + 0.08 * own.random()), 6) for _ in range(steps))
    return Speed(
        step_seconds=times,
        forward_seconds=round(0.3 * middle, 6),
        backward_seconds=round(0.6 * middle, 6),
        update_seconds=round(0.1 * middle, 6),
        communication_share=None if row.engine == "single" else 0.23,
        tokens_per_second=round(335 / middle, 1),
    )


def misuses(row: Variant) -> tuple[Misuse, ...]:
    if row.stage is None:
        return ()
    names = ("gradients clipped by hand", "gradients zeroed", "optimizer stepped")
    errors = ("ClippedByHandError", "ZeroedByHandError", "StepOrderError")
    if row.engine == "token":
        return tuple(
            Misuse(misuse=name, outcome=f"stopped: {error}", step_error=None)
            for name, error in zip(names, errors, strict=True)
        )
    stops = row.stage == 3
    return (
        Misuse(
            misuse=names[0], outcome="no effect" if stops else "changes the step", step_error=0.0 if stops else 0.27
        ),
        Misuse(misuse=names[1], outcome="changes the step", step_error=0.74),
        Misuse(misuse=names[2], outcome="fails: AssertionError" if stops else "changes the step", step_error=None),
    )


def result(row: Variant, spec: RunSpec, *, steps: int = 10, misused: bool = False, **changes: Any) -> VariantResult:
    """A variant that went well; `changes` are fields of VariantResult."""
    values: dict[str, Any] = {
        "name": row.name,
        "status": "done",
        "parity": parity(row, steps),
        "communication": communication(row, spec),
        "memory": memory(row, spec),
        "speed": speed(row),
        "misuses": misuses(row) if misused else (),
    }
    return VariantResult(**{**values, **changes})


def comparison(
    variants: Sequence[Variant] | None = None, *, steps: int = 10, misused: bool = True, **changes: Any
) -> Comparison:
    """A whole comparison in which all went well; `changes` are fields of RunSpec."""
    rows = all_variants() if variants is None else tuple(variants)
    values = {"world_size": 2, "global_batch_size": 16, "steps": steps, "variants": rows, **changes}
    spec = RunSpec(**values)
    return Comparison(
        format=1,
        spec=spec,
        versions={"ds-accum": "0.1.0", "deepspeed": "0.19.8", "torch": "2.13.0+cpu", "python": "3.11.7"},
        machine={"processor": "x86_64", "cores": "2", "memory": "8.0 GB", "accelerator": "none"},
        parameters=PARAMETERS,
        results=tuple(result(row, spec, steps=steps, misused=misused) for row in rows),
    )


def replaced(of: Comparison, name: str, **changes: Any) -> Comparison:
    """The comparison with other fields in one variant's result."""
    assert any(item.name == name for item in of.results)
    results = tuple(dataclasses.replace(item, **changes) if item.name == name else item for item in of.results)
    return dataclasses.replace(of, results=results)


NOTHING: dict[str, Any] = {"parity": None, "communication": None, "memory": None, "speed": None, "misuses": ()}


def with_failures() -> Comparison:
    """One variant refused by the linter, one that failed, one that was broken off."""
    whole = comparison()
    whole = replaced(
        whole,
        "zero-2 stock",
        status="refused",
        failure="DSA204: overlap_comm needs contiguous_gradients, which is false at zero_optimization.contiguous_gradients",
        **NOTHING,
    )
    stderr = (
        'Traceback (most recent call last):\n  File "worker.py", line 88\nRuntimeError: rank 1 ran out of memory <&>'
    )
    whole = replaced(whole, "fsdp", status="failed", failure=stderr, **NOTHING)
    return replaced(whole, "zero-3 token", status="unfinished", failure="broken off after 3 of 10 steps", speed=None)


def not_measured() -> Comparison:
    """Every number that may be missing is."""
    spec = RunSpec(world_size=2, global_batch_size=16, steps=1, warmup=0, variants=all_variants())
    whole = comparison(steps=1, warmup=0, misused=False)
    step = StepResult(
        step=1, loss=None, num_tokens=0, grad_norm=None, clip_coefficient=None, applied=False, update_error=None
    )
    bare = Parity(steps=(step,), largest_error=None, tolerance=TOLERANCE, first_difference=None)
    results = []
    for index, row in enumerate(spec.variants):
        some: dict[str, Any] = {**NOTHING}
        if index % 2:
            some |= {
                "parity": bare,
                "communication": Communication(counted=(), expected=None),
                "memory": Memory(peak=0, reserved=None, parameters=0, gradients=0, optimizer_state=0),
                "speed": dataclasses.replace(speed(row), step_seconds=(), communication_share=None),
            }
        results.append(VariantResult(name=row.name, status="done", **some))
    return dataclasses.replace(whole, results=tuple(results), versions={}, machine={})


def one_variant() -> Comparison:
    return comparison([variant("stock", 2)], misused=False)


def extreme() -> Comparison:
    """Long names, names that are markup, and numbers at the ends of their ranges."""
    long = "zero-3 stock 16x2 overlap_comm=true stage3_prefetch_bucket_size=50000000 reduce_bucket_size=500000000"
    odd = "zero-1 token <script>alert('$x_1$ | `a` & b')</script> 変種"
    rows = [variant("stock", 3, name=long), variant("token", 1, name=odd), variant("single")]
    whole = comparison(rows, steps=3)
    first, second = whole.results[0], whole.results[1]
    assert first.parity and second.parity and first.speed and second.speed and first.memory
    steps = tuple(
        dataclasses.replace(
            step, loss=loss, update_error=error, grad_norm=math.inf, clip_coefficient=0.0, applied=False
        )
        for step, loss, error in zip(
            first.parity.steps, (1e30, math.nan, math.inf), (1e-300, math.inf, math.nan), strict=True
        )
    )
    whole = replaced(
        whole,
        long,
        parity=dataclasses.replace(first.parity, steps=steps, largest_error=math.inf),
        memory=dataclasses.replace(first.memory, peak=10**15, reserved=2 * 10**15),
        speed=dataclasses.replace(first.speed, step_seconds=(1e-9, 1e5, 3.0), tokens_per_second=1e12),
    )
    zero = tuple(dataclasses.replace(step, update_error=0.0) for step in second.parity.steps)
    return replaced(
        whole,
        odd,
        parity=dataclasses.replace(second.parity, steps=zero, largest_error=0.0),
        speed=dataclasses.replace(second.speed, step_seconds=(0.0, 0.0, 0.0)),
    )


EXAMPLES = {
    "whole": comparison,
    "failures": with_failures,
    "not-measured": not_measured,
    "one-variant": one_variant,
    "extreme": extreme,
}
