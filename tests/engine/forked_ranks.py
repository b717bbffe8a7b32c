"""The worker behind `launch.py`: imports torch and DeepSpeed once, and forks every rank of every job.

    python forked_ranks.py RANKS_AT_ONCE FOLDER < jobs.jsonl > answers.jsonl

A job is one line of JSON with the fields of `launch.Job`, its answer another. What the ranks print goes to files in
FOLDER. A rank that fails leaves the others a moment to fail by themselves; then they are killed, and say where they were.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import gc
import importlib
import json
import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# One thread each: the ranks share the CPUs, and a process with threads must not be forked.
os.environ.update(DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1", TORCHINDUCTOR_COMPILE_THREADS="1")
os.environ.setdefault("DEEPSPEED_LOG_LEVEL", "error")


@dataclass(slots=True)
class _Running:
    """A job whose ranks are running: rank by process id, and how and when each of them ended."""

    job: dict[str, Any]
    folder: Path
    started: float
    deadline: float
    processes: dict[int, int] = field(default_factory=dict)
    exits: dict[int, int] = field(default_factory=dict)
    ends: dict[int, float] = field(default_factory=dict)


def main(ranks_at_once: str, folder: str) -> None:
    jobs = [json.loads(line) for line in sys.stdin]
    prepare(json.dumps(jobs).lower())
    for module in sorted({job["function"].partition(":")[0] for job in jobs}):
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    running: list[_Running] = []
    waiting = dict(enumerate(jobs))
    while waiting or running:
        while (number := _next(waiting, running, int(ranks_at_once))) is not None:
            running.append(_start(waiting.pop(number), Path(folder) / str(number)))
        for item in list(running):
            if _has_ended(item):
                running.remove(item)
                print(json.dumps(_answer(item)), flush=True)
        time.sleep(0.002)


def prepare(wanted: str) -> None:
    """Imports all that the ranks share. `wanted` is a text: an operator that it does not name is not compiled."""
    import cpuinfo  # type: ignore[import-untyped]
    import deepspeed
    import torch
    import torch.utils.cpp_extension
    from deepspeed.accelerator import get_accelerator

    torch.set_num_threads(1)
    # DeepSpeed asks whether oneDNN has fp16 kernels for this CPU; torch computes in fp16 on every CPU, only slowly.
    get_accelerator().is_fp16_supported = lambda: True
    # DeepSpeed imports these when it first builds an engine, and with Muon half of torch: seconds for every rank.
    for module in (
        "torch._dynamo",
        "deepspeed.runtime.zero.muon.muon_optimizer",
        "deepspeed.module_inject.auto_ep_config",
        "deepspeed.runtime.pipe.engine",
    ):
        with contextlib.suppress(ImportError):  # not every release has all of them
            importlib.import_module(module)
    # Asks the compiler, once. Its all-reduce for inference would leave 66 MiB of shared memory behind for every rank.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    # An optimizer on the CPU asks for the maker of the CPU, which takes a second; the answer does not change.
    cpuinfo.get_cpu_info = functools.cache(cpuinfo.get_cpu_info)
    cpuinfo.get_cpu_info()
    for builder, name in (
        ("FusedAdamBuilder", "fused_adam"),
        ("CPUAdamBuilder", "cpu_adam"),
        ("CPUAdagradBuilder", "adagrad"),
        ("CPULionBuilder", "cpu_lion"),
    ):
        if name in wanted:
            # By its name: not every release has all of them in one module.
            get_accelerator().create_op_builder(builder).load(verbose=False)
    torch.utils.cpp_extension.load = _compile_nothing_more  # type: ignore[assignment]


def _compile_nothing_more(name: str, **_: Any) -> None:
    """A rank that is killed while it compiles would leave a lock behind that every later one waits for."""
    raise RuntimeError(f"{name} has to be compiled before the first rank starts")


def _next(waiting: dict[int, dict[str, Any]], running: list[_Running], ranks_at_once: int) -> int | None:
    """The number of the first job that comes after none that is not over, if there is room for its ranks."""
    unfinished = {job["name"] for job in [*waiting.values(), *(item.job for item in running)]}
    for number, job in waiting.items():
        if job["after"] not in unfinished:
            ranks = sum(item.job["ranks"] for item in running)
            return number if not running or ranks + job["ranks"] <= ranks_at_once else None
    return None


def _start(job: dict[str, Any], folder: Path) -> _Running:
    folder.mkdir(parents=True)
    now = time.monotonic()
    running = _Running(job=job, folder=folder, started=now, deadline=now + job["timeout"])
    for rank in range(job["ranks"]):
        process = os.fork()
        if process == 0:
            _be_a_rank(job, rank, folder)
        running.processes[process] = rank
    return running


def _has_ended(running: _Running) -> bool:
    for process, rank in running.processes.items():
        if rank not in running.exits:
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                running.exits[rank] = os.waitstatus_to_exitcode(status)
                running.ends[rank] = time.monotonic() - running.started
    if len(running.exits) == len(running.processes):
        return True
    if running.exits:
        running.deadline = min(running.deadline, running.started + min(running.ends.values()) + running.job["moment"])
    if time.monotonic() >= running.deadline:
        for process, rank in running.processes.items():
            if rank not in running.exits:
                # Where it is, Python writes into its log; then it goes.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGUSR1)
                    time.sleep(0.2)
                    os.kill(process, signal.SIGKILL)
    return False


def _answer(running: _Running) -> dict[str, Any]:
    values, errors, outputs = [], [], []
    for rank in range(running.job["ranks"]):
        log = running.folder / f"rank{rank}.log"
        last = log.read_text("utf-8", "replace")[-12_000:] if log.exists() else ""
        outputs.append(last)
        path = running.folder / f"rank{rank}.json"
        if path.exists():
            said = json.loads(path.read_text("utf-8"))
            values.append(said["value"])
            errors.append(said["error"])
            continue
        code = running.exits[rank]
        values.append(None)
        errors.append(f"{'was killed' if code == -signal.SIGKILL else f'exited with {code}'}; it said last:\n{last}")
    seconds = time.monotonic() - running.started
    return {
        "name": running.job["name"],
        "values": values,
        "errors": errors,
        "seconds": round(seconds, 2),
        "outputs": outputs,
        "ends": [round(running.ends[rank], 2) for rank in range(running.job["ranks"])],
    }


# --- one rank ---------------------------------------------------------------------------------------------------------


def _be_a_rank(job: dict[str, Any], rank: int, folder: Path) -> None:
    """Runs one rank of a job in this process, writes what it returned, and ends the process."""
    code = 1
    try:
        log = os.open(folder / f"rank{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        faulthandler.register(signal.SIGUSR1, file=2)
        os.chdir(folder)
        said: dict[str, Any] = {"value": None, "error": None}
        try:
            _join(job, rank, folder)
            module, _, name = job["function"].partition(":")
            said["value"] = getattr(importlib.import_module(module), name)(job["arguments"], rank, folder)
        except Exception:
            said["error"] = traceback.format_exc()
        (folder / f"rank{rank}.part").write_text(json.dumps(said), "utf-8")
        (folder / f"rank{rank}.part").rename(folder / f"rank{rank}.json")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Without the interpreter's own clean-up, which would wait for the other ranks.
        os._exit(code)


def _join(job: dict[str, Any], rank: int, folder: Path) -> None:
    """The process group of a job's ranks, with the environment that DeepSpeed's own launcher sets for one node."""
    import deepspeed

    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(job["ranks"]),
        LOCAL_SIZE=str(job["ranks"]),
        CROSS_RANK="0",
        CROSS_SIZE="1",
        # Looked for, but not used: the ranks meet in a file, so no port can be taken.
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="29500",
    )
    if job["store"] == "rank 0":
        _meet_at_rank_0(rank, job["ranks"], folder / "port")
    deepspeed.init_distributed(
        dist_backend="gloo",
        auto_mpi_discovery=False,
        init_method=f"file://{folder / 'rendezvous'}",
        rank=rank,
        world_size=job["ranks"],
        verbose=False,
    )


def _meet_at_rank_0(rank: int, ranks: int, port: Path) -> None:
    """Joins the ranks over a store that rank 0 serves, at a port that it writes down; DeepSpeed finds them joined."""
    import torch.distributed as dist

    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, ranks, is_master=True, wait_for_workers=False)
        port.with_suffix(".part").write_text(str(store.port), "utf-8")
        port.with_suffix(".part").rename(port)
    else:
        while not port.exists():
            time.sleep(0.01)
        store = dist.TCPStore("127.0.0.1", int(port.read_text("utf-8")), ranks, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)


if __name__ == "__main__":
    main(*sys.argv[1:])
