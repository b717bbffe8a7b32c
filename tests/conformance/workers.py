"""A long run of seeds, shared out among the CPUs: one process each, one line of JSON for everything worth saying."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


def first_seed() -> int:
    """Where this run starts; `conftest.py` takes it from the clock where nobody says."""
    return int(os.environ["DS_ACCUM_SEED"])


def run_seeds(script: str, first: int, count: int) -> list[dict[str, Any]]:
    """What `python SCRIPT FIRST COUNT` prints for a range of seeds, from all processes. Raises RuntimeError if one fails."""
    share = -(-count // (os.cpu_count() or 1))
    workers = [
        subprocess.Popen(
            [sys.executable, FOLDER / script, str(start), str(min(share, first + count - start))],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for start in range(first, first + count, share)
    ]
    lines: list[dict[str, Any]] = []
    for worker in workers:
        printed, errors = worker.communicate()
        if worker.returncode:
            raise RuntimeError(f"{script} exited with {worker.returncode}:\n{errors[-4000:]}")
        lines += [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return lines
