"""Ranks that train nothing: a real process each, which says to the comparison what it is told to, and misbehaves so.

FAKE_WORKER in the environment is JSON: variant -> how it goes wrong. FAKE_LOG is a file for one line a launch.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(sys.argv[1])
RANK, WORLD_SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
BEHAVIOUR = json.loads(os.environ.get("FAKE_WORKER", "{}"))

# A collective, to whoever looks at the stack.
COLLECTIVE = """
def all_reduce(name):
    (FOLDER / f"{name}-{RANK}").touch()
    while not all((FOLDER / f"{name}-{rank}").exists() for rank in range(WORLD_SIZE)):
        time.sleep(0.01)
"""
exec(compile(COLLECTIVE, "/site-packages/torch/distributed/distributed_c10d.py", "exec"), globals())


def say(**event: object) -> None:
    if RANK == 0:
        with (FOLDER / "events.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")


def result_of(kind: str, name: str) -> dict[str, object]:
    error = 0.02 if "stock" in name else 1e-7
    step = {"step": 1, "loss": 5.5, "num_tokens": 90, "grad_norm": 1.5, "clip_coefficient": 0.66, "applied": True}
    measured: dict[str, dict[str, object]] = {
        "parity": {
            "parity": {
                "steps": [{**step, "update_error": error}],
                "largest_error": error,
                "tolerance": 1e-5,
                "first_difference": None,
            },
            "communication": {
                "counted": [
                    {"kind": "all-reduce", "moment": "boundary", "calls": 1.0, "bytes": 4096.0},
                    {"kind": "all-reduce", "moment": "step", "calls": 1.0, "bytes": 4.0},
                ],
                "expected": None,
            },
            "speed": {
                "step_seconds": [0.25, 0.5, 0.75],
                "forward_seconds": 0.1,
                "backward_seconds": 0.2,
                "update_seconds": 0.1,
                "communication_share": 0.2,
                "tokens_per_second": 180.0,
            },
        },
        "memory": {
            "memory": {"peak": 2**20, "reserved": None, "parameters": 4096, "gradients": 4096, "optimizer_state": 4096}
        },
        "misuse": {"misuses": [{"misuse": "clip", "outcome": "changes the step", "step_error": 0.5}]},
    }
    return {"name": name, "status": "done", **measured[kind]}


def misbehave(how: str, name: str) -> bool:
    """Whether the variant is over with this."""
    if how == "failed in step":
        say(event="failed", variant=name, why="ValueError: every rank agreed that this fails")
        return True
    if how == "unreadable result":
        say(event="result", variant=name, result={"name": name, "status": "splendid"})
        return True
    if how == "garbage":
        with (FOLDER / "events.jsonl").open("ab") as file:
            file.write(b'\xff\x00 no json\n{"event": 3}\n[]\n')
        return False
    if RANK != 1:
        return False
    if how == "raises":
        raise ValueError("only rank 1 fails")
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "sleeps":
        sleep_without_end()
    if how == "has a child":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
        (Path(os.environ["FAKE_LOG"]).parent / "child").write_text(str(child.pid), encoding="utf-8")
        raise ValueError("and leaves its child")
    if how == "leaves early":
        sys.exit(0)
    return False


def sleep_without_end() -> None:
    time.sleep(300)


def say_what_is_known(*_: object) -> None:
    say(event="result", variant="zero-0 token", result={**result_of("parity", "zero-0 token"), "status": "unfinished"})
    os._exit(130)


def main() -> None:
    signal.signal(signal.SIGTERM, say_what_is_known)
    job = json.loads((FOLDER / "job.json").read_text("utf-8"))
    if RANK == 0 and "FAKE_LOG" in os.environ:
        with Path(os.environ["FAKE_LOG"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": job["kind"], "variants": job["variants"], "pid": os.getpid()}) + "\n")
    if "start" in BEHAVIOUR:
        raise ImportError("No module named 'something'")
    for place, name in enumerate(job["variants"]):
        say(event="started", variant=name)
        all_reduce(f"{place}-start")  # type: ignore[name-defined]  # noqa: F821
        how = BEHAVIOUR.get(f"{job['kind']}: {name}", BEHAVIOUR.get(name, ""))
        if misbehave(how, name):
            continue
        for step in range(2):
            all_reduce(f"{place}-{step}")  # type: ignore[name-defined]  # noqa: F821
            say(event="progress", variant=name, done=step + 1, of=2)
        if how != "no result":
            say(event="result", variant=name, result=result_of(job["kind"], name))
    say(event="finished", parameters=1234)


main()
