"""What the ranks of `test_windows.py` do: windows that an error interrupts, or that end in another way than by counting."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tiny import batch, moved, raised, start, train

from ds_accum.engine.deepspeed_private import scale_holder
from ds_accum.engine.report import StepReport

Arguments = dict[str, Any]


def backward(engine: Any, value: float, num_tokens: int | None = None) -> None:
    """Forward and backward of a micro-batch with one token."""
    engine.backward(engine(**batch([value])), num_tokens=num_tokens)


def ending(engine: Any) -> dict[str, Any]:
    """Where the engine and DeepSpeed in it stand after a step."""
    report = engine.last_step
    return {
        "moved": moved(engine),
        "micro_steps": engine.micro_steps,
        "global_steps": engine.global_steps,
        "skipped_steps": engine.skipped_steps,
        "open": engine._accumulation.window.micro_batches,
        "report": None if report is None else [report.step, report.micro_batches, report.num_tokens, report.applied],
    }


def error_after_the_step(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """A step that is skipped with an error, between two that are not: all micro-batches differ."""
    block = {"counting": {"shift": False}, "on_nonfinite": "raise"}
    engine = start("ours", accumulation=2, block=block, **arguments["settings"])
    train(engine, [1.0])
    train(engine, [3.0])
    train(engine, [5.0])
    backward(engine, float("nan") if rank else 9.0)
    said = {"raised": raised(engine.step), "then": ending(engine)}
    train(engine, [10.0])
    return said | {"between": ending(engine), "last": train(engine, [20.0]), "end": ending(engine)}


def error_inside_a_window(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """A flush that is refused because rank 1 has less; `more` micro-batches of each rank later it is exact."""
    engine = start("ours", accumulation=8, **arguments["settings"])
    for value in (1.0, 3.0)[: 2 - rank]:
        train(engine, [value])
    said = {"refused": raised(engine.flush)}
    for value in arguments["more"][rank]:
        train(engine, [value])
    flushed = engine.flush()
    return said | {"flushed": flushed, **ending(engine)}


def error_at_the_step(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """A flush that is refused, with its totals known by then, because the loss scale has moved; another one after more."""
    fp16 = {"enabled": True, "initial_scale_power": 8}
    engine = start("ours", accumulation=8, fp16=fp16, **arguments["settings"])
    train(engine, [1.0])
    scale_holder(engine.optimizer).cur_scale = 64.0
    said = {"refused": raised(engine.flush)}
    train(engine, [3.0])
    # It is told that the one that was refused has reduced gradients already.
    return said | {"told": raised(engine.flush), **ending(engine)}


def flush_after_the_boundary(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """A flush in the place of the step at the boundary, whose backward has reduced; then a window as ever."""
    engine = start("ours", accumulation=2, **arguments["settings"])
    train(engine, [1.0])
    backward(engine, 2.0 + 2.0 * rank)
    said = {"flushed": engine.flush(), "first": ending(engine), "reductions": engine.last_step.events.reductions}
    train(engine, [1.0])
    train(engine, [9.0])
    return said | {"second": ending(engine)}


def declared(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """A window declared with fewer tokens than ranks: each rank's one token is counted where `tokens` says so."""
    engine = start("ours", **arguments["settings"])
    tokens = arguments["tokens"][rank]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        engine.begin_window(tokens)
        backward(engine, 4.0 + rank, num_tokens=tokens)
        engine.step()
    said = [str(one.message) for one in caught if "begin_window" in str(one.message)]
    return {"warnings": said, "because": engine.last_step.skipped_because, **ending(engine)}


def nothing_on_rank_1(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """A flush of one micro-batch on rank 0 and of none on rank 1, where that is only warned about; between whole windows."""
    block = {"counting": {"shift": False}, "on_misuse": "warn", **arguments.get("block", {})}
    engine = start("ours", accumulation=2, block=block, **arguments["settings"])
    # The first forward of all agrees with the others' on a constant.
    train(engine, [1.0])
    train(engine, [9.0])
    if rank == 0:
        train(engine, [3.0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        refused = raised(engine.flush)
    said = {
        "refused": refused,
        "warnings": [str(one.message) for one in caught if "ranks have" in str(one.message)],
        "misuses": dict(engine.last_step.misuses),
        "first": ending(engine),
    }
    if refused != "nothing":
        return said
    train(engine, [1.0])
    train(engine, [9.0])
    return said | {"second": ending(engine)}


def scaled_for_nothing(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """The result of `engine.scale` is dropped: at the end of the window, or before another micro-batch of it."""
    engine = start("ours", accumulation=arguments["accumulation"], **arguments["settings"])
    engine.scale(engine(**batch([4.0])))
    if arguments["accumulation"] == 2:
        engine.step()
        backward(engine, 2.0)
    return {"raised": raised(engine.step), "moved": moved(engine)}


def warmed_up(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """A forward for nothing, of each kind, before the window is declared."""
    engine = start("ours", accumulation=2, **arguments["settings"])
    how = arguments["how"]
    if how == "evaluation":
        engine.eval()
    with torch.set_grad_enabled(how != "no gradients"):
        first = engine(**batch([50.0]))
    engine.train()
    said = {"raised": raised(lambda: engine.begin_window(2))}
    if how == "its own forward":
        engine.backward(first)
        engine.step()
    else:
        del first
        engine.backward(engine(**batch([50.0])), num_tokens=1)
        engine.step()
    train(engine, [10.0])
    return said | ending(engine)


def report_that_nobody_asks_for(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """How often the norm is read for the report: after two steps, when it is asked for, and asked for again."""
    engine = start("ours", **arguments["settings"])
    read: list[Any] = []
    measured = StepReport.measured.__func__  # type: ignore[attr-defined]

    def noting(cls: Any, norm: Any, *others: Any, **numbers: Any) -> Any:
        read.append(norm)
        return measured(cls, norm, *others, **numbers)

    StepReport.measured = classmethod(noting)  # type: ignore[assignment, method-assign]
    reads = []
    for _ in range(2):
        backward(engine, 3.0)
        engine.step()
    reads.append(len(read))
    reports = [engine.last_step]
    reads.append(len(read))
    reports.append(engine.last_step)
    reads.append(len(read))
    return {"reads": reads, "norm": reports[0].grad_norm, "same": reports[0] is reports[1]}


def loss_reduced_in_place(arguments: Arguments, rank: int, folder: Path) -> float | None:
    """The loss in the report of a loop that overwrites each loss after its backward, as to print a mean over ranks."""
    return _reported_loss(arguments, lambda loss: loss.detach().fill_(1000.0))


def loss_left_alone(arguments: Arguments, rank: int, folder: Path) -> float | None:
    """The same without."""
    return _reported_loss(arguments, lambda loss: loss)


def _reported_loss(arguments: Arguments, after_backward: Callable[[torch.Tensor], Any]) -> float | None:
    engine = start("ours", accumulation=2, block={"counting": {"shift": False}}, **arguments["settings"])
    for value in (1.0, 3.0):
        loss = engine(**batch([value]))
        engine.backward(loss)
        after_backward(loss)
        engine.step()
    report: StepReport = engine.last_step
    return report.loss
