"""Ranks that stop: one that sleeps, one that is killed, and all of them at an evaluation that takes long."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from cases import case_of
from guards.loop import Loop

from ds_accum.engine.guards import hanging

TIMEOUT_S = 2.0


def sleep_on_rank_1(arguments: dict[str, Any], rank: int, folder: Path) -> None:
    loop = _loop(arguments, rank)
    loop.window()
    if rank == 1:
        time.sleep(60)
    loop.window()


def die_on_rank_1(arguments: dict[str, Any], rank: int, folder: Path) -> None:
    # The others are left a moment by whoever started them, too: they have to know sooner.
    hanging._SILENT_S = 1.5
    loop = _loop(arguments, rank, timeout_s=30.0)
    loop.window()
    if rank == 1:
        time.sleep(2 * hanging._BEAT_S)  # what it last wrote is where it died
        os.kill(os.getpid(), signal.SIGKILL)
    loop.window()


def evaluate_for_long(arguments: dict[str, Any], rank: int, folder: Path) -> dict[str, Any]:
    loop = _loop(arguments, rank, timeout_s=1.0)
    loop.window()
    loop.module.eval()
    with torch.no_grad():
        loop.engine(**loop.batch())
        time.sleep(2.5 if rank else 1.5)
    loop.module.train()
    loop.window()
    return {"applied": [report.applied for report in loop.reports]}


def _loop(arguments: dict[str, Any], rank: int, timeout_s: float = TIMEOUT_S) -> Loop:
    return Loop(replace(case_of(arguments), block={"timeout_s": timeout_s}), rank)
