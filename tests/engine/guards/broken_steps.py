"""Steps of the engine whose order is broken on purpose, by putting something else in the place of a part of DeepSpeed's.

Each is broken from the second window on, so that the first shows the same step whole.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from cases import case_of
from guards.loop import Loop
from training import master_parameters

from ds_accum.engine.guards.order import StepOrderError

NORMS = {
    "DeepSpeedZeroOptimizer": "scaled_global_norm",
    "DeepSpeedZeroOptimizer_Stage3": "_get_norm_groups",
    "FP16_UnfusedOptimizer": "unscale_and_clip_grads",
    "BF16_Optimizer": "get_grads_for_norm",
}
"""What takes the norm, by wrapper."""


def take_the_norm_twice(loop: Loop) -> None:
    loop.window()
    owner, name = _norm_of(loop)
    original = getattr(owner, name)

    def twice(*arguments: Any, **options: Any) -> Any:
        original(*arguments, **options)
        return original(*arguments, **options)

    setattr(owner, name, twice)
    loop.window()


def take_no_norm(loop: Loop) -> None:
    """What the norm was is used again, as a step would that keeps it from the window before."""
    owner, name = _norm_of(loop)
    original = getattr(owner, name)
    kept: list[Any] = []

    def keep(*arguments: Any, **options: Any) -> Any:
        if not kept:
            kept.append(original(*arguments, **options))
        return kept[0]

    setattr(owner, name, keep)
    loop.window()
    loop.window()


def take_the_norm_before_the_last_reduction(loop: Loop) -> None:
    loop.window()
    owner, name = _norm_of(loop)
    original, engine = getattr(owner, name), loop.engine

    def too_early(*arguments: Any, **options: Any) -> Any:
        norm = original(*arguments, **options)
        engine.allreduce_gradients()
        return norm

    setattr(owner, name, too_early)
    loop.window()


def take_a_norm_between_micro_batches(loop: Loop) -> None:
    loop.window()
    loop.micro_batch()
    loop.engine.optimizer.scaled_global_norm() if loop.case.stage == 2 else loop.engine.optimizer._get_norm_groups()
    loop.micro_batch()


def update_twice(loop: Loop) -> None:
    loop.window()
    inner = loop.engine.basic_optimizer
    original = inner.step

    def twice(*arguments: Any, **options: Any) -> Any:
        original(*arguments, **options)
        return original(*arguments, **options)

    inner.step = twice
    loop.window()


def update_never(loop: Loop) -> None:
    loop.window()
    loop.engine.basic_optimizer.step = _nothing
    loop.window()


def leave_gradients_as_they_are(loop: Loop) -> None:
    loop.window()
    # Stage 0 in fp32 zeroes through the engine, the wrappers through themselves, some within their own step.
    loop.engine.optimizer.zero_grad = _nothing
    loop.engine.zero_grad = _nothing
    loop.window()


def reduce_nothing(loop: Loop) -> None:
    loop.window()
    loop.engine.allreduce_gradients = _nothing
    loop.window()


def finish_a_broken_step(arguments: dict[str, Any], rank: int, folder: Path) -> dict[str, Any]:
    """Where a broken step leaves the engine that raises, beside one that lets it pass; and after a window more."""
    case = case_of(arguments)
    said: dict[str, Any] = {}
    for mode in ("raise", "count"):
        loop = Loop(replace(case, block={**case.block, "on_misuse": mode}), rank)
        ends = []
        for run in (lambda loop=loop: take_the_norm_twice(loop), loop.window):
            try:
                run()
                raised = False
            except StepOrderError:
                raised = True
            engine, report = loop.engine, loop.engine.last_step
            ends.append(
                {
                    "raised": raised,
                    "counters": [engine.micro_steps, engine.global_steps, engine.skipped_steps],
                    "open": engine._accumulation.window.micro_batches,
                    "report": [report.step, report.micro_batches, report.num_tokens, report.loss, report.grad_norm],
                    "parameters": float(master_parameters(engine, loop.case).abs().sum()),
                }
            )
        said[mode] = ends
    return said


def _norm_of(loop: Loop) -> tuple[Any, str]:
    kind = type(loop.engine.optimizer).__name__
    return (loop.engine.optimizer, NORMS[kind]) if kind in NORMS else (loop.engine, "clip_fp32_gradients")


def _nothing(*_: Any, **__: Any) -> None:
    return None
