"""Runs whose reports are looked at in full: returned as they are, and read back from where they were published."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cases import Case, case_of
from training import start, train_window
from truth import kept_truth


def report_all(arguments: dict[str, Any], rank: int, folder: Path) -> dict[str, Any]:
    """Every report of a case on this rank, as JSON has it, and the truth."""
    case = case_of(arguments)
    engine = start(case)
    reports = []
    for window in range(len(case.windows)):
        train_window(engine, case, window, rank)
        report = engine.last_step
        reports.append({**asdict(report), "clipped_norm": report.clipped_norm})
    truth = kept_truth(case, folder.parent)
    return {
        "reports": reports,
        "true_losses": truth.losses,
        "true_norms": truth.norms,
        "true_tokens": truth.tokens,
    }


def publish_all(arguments: dict[str, Any], rank: int, folder: Path) -> dict[str, Any]:
    """Trains twice, as a run and its resumption do; what each left in the step log and in DeepSpeed's monitors."""
    case = case_of(arguments)
    reports = []
    for _ in range(2):
        reports += _train(case, rank)
    log = folder / "logs" / "steps.jsonl"
    lines = log.read_text("utf-8").splitlines() if rank == 0 else []
    return {
        "reports": reports,
        "log": [json.loads(line) for line in lines],
        "csv": _csv_series(folder / "csv") if rank == 0 else {},
        "tensorboard": _tensorboard_series(folder / "tensorboard") if rank == 0 else {},
    }


def _train(case: Case, rank: int) -> list[dict[str, Any]]:
    engine = start(case)
    reports = []
    for window in range(len(case.windows)):
        train_window(engine, case, window, rank)
        reports.append({**asdict(engine.last_step), "samples": engine.global_samples})
    for monitor in ("tb_monitor", "csv_monitor"):
        writer = getattr(getattr(engine.monitor, monitor, None), "summary_writer", None)
        if writer is not None:
            writer.close()
    engine.destroy()
    return reports


def _csv_series(folder: Path) -> dict[str, list[list[float]]]:
    """(samples, value) of each series, by the name of its file."""
    series = {}
    for path in sorted(folder.rglob("*.csv")):
        rows = [line.split(",") for line in path.read_text("utf-8").splitlines()]
        series[path.stem] = [[float(samples), float(value)] for samples, value in rows if samples != "step"]
    return series


def _tensorboard_series(folder: Path) -> dict[str, list[list[float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    series: dict[str, list[list[float]]] = {}
    for path in sorted(folder.rglob("events.out.tfevents.*")):
        events = EventAccumulator(str(path))
        events.Reload()
        for tag in events.Tags()["scalars"]:
            series.setdefault(tag, []).extend([event.step, event.value] for event in events.Scalars(tag))
    return series
