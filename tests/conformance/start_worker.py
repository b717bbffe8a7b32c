"""Starts DeepSpeed with each config it is given, on real CPU ranks, and says what became of it.

    python start_worker.py RANKS_AT_ONCE FOLDER < trials.jsonl > results.jsonl

One process imports torch and DeepSpeed and loads the compiled optimizers; every rank of every trial is then a fork of
it. So a trial costs a fraction of a second, none can influence the next, and one that hangs or crashes is killed and
named while the others go on. A trial is one line of JSON, with the fields of `deepspeed_start.Trial`; its result is
another, with those of `Outcome`. What the ranks print goes to files in FOLDER.
"""

from __future__ import annotations

import contextlib
import copy
import faulthandler
import functools
import gc
import importlib
import json
import math
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

import measure  # imports torch, which reads the variables above

# More micro-batches than these are not run: the last of them is made the boundary.
MICRO_BATCHES = 4


@dataclass(slots=True)
class _Running:
    """A trial whose ranks are running: their process ids, and when it is given up."""

    trial: dict[str, Any]
    folder: Path
    deadline: float
    processes: dict[int, int] = field(default_factory=dict)
    exits: dict[int, int] = field(default_factory=dict)
    hung: bool = False


def main(ranks_at_once: str, folder: str) -> None:
    _be_the_first_to_go()
    trials = [json.loads(line) for line in sys.stdin]
    _import_everything("\n".join(_text_of(trial["config"]) for trial in trials).lower())
    running: list[_Running] = []
    waiting = list(enumerate(trials))
    while waiting or running:
        while waiting and sum(item.trial["ranks"] for item in running) + waiting[0][1]["ranks"] <= max(
            int(ranks_at_once), waiting[0][1]["ranks"]
        ):
            number, trial = waiting.pop(0)
            running.append(_start(trial, Path(folder) / str(number)))
        for item in list(running):
            if _has_ended(item):
                running.remove(item)
                print(json.dumps(_result(item)), flush=True)
        time.sleep(0.002)


def _be_the_first_to_go() -> None:
    """Where the machine runs out of memory, a trial with a huge buffer shall go, and nothing else that runs there."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")


def _text_of(config: str | dict[str, Any]) -> str:
    return Path(config).read_text("utf-8", "replace") if isinstance(config, str) else json.dumps(config)


def _import_everything(wanted: str) -> None:
    """All that the ranks share. `wanted` is the text of all configs: an operator is compiled only if one may need it."""
    import cpuinfo  # type: ignore[import-untyped]
    import deepspeed
    import torch
    import torch.utils.cpp_extension
    from deepspeed.accelerator import get_accelerator
    from deepspeed.ops.op_builder.cpu import (
        CPUAdagradBuilder,
        CPUAdamBuilder,
        CPULionBuilder,
        FusedAdamBuilder,
        PinMemoryBuilder,
    )

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
        importlib.import_module(module)
    # Asks the compiler, once. Its all-reduce for inference would leave 66 MiB of shared memory behind for every rank.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    # An optimizer on the CPU asks for the maker of the CPU, which takes a second; the answer does not change.
    cpuinfo.get_cpu_info = functools.cache(cpuinfo.get_cpu_info)
    cpuinfo.get_cpu_info()
    for builder, name in (
        (FusedAdamBuilder, ""),
        (CPUAdamBuilder, ""),
        (CPUAdagradBuilder, "adagrad"),
        (CPULionBuilder, "lion"),
        (PinMemoryBuilder, "nvme"),
    ):
        if name in wanted:
            builder().load(verbose=False)
    torch.utils.cpp_extension.load = _compile_nothing_more  # type: ignore[assignment]
    gc.collect()
    gc.freeze()


def _compile_nothing_more(name: str, **_: Any) -> None:
    """A rank that is killed while it compiles would leave a lock behind that every later one waits for."""
    raise RuntimeError(f"{name} has to be compiled before the first rank starts")


def _start(trial: dict[str, Any], folder: Path) -> _Running:
    folder.mkdir(parents=True)
    running = _Running(trial=trial, folder=folder, deadline=time.monotonic() + trial["timeout"])
    for rank in range(trial["ranks"]):
        process = os.fork()
        if process == 0:
            _be_a_rank(trial, rank, folder)
        running.processes[process] = rank
    return running


def _has_ended(running: _Running) -> bool:
    for process, rank in running.processes.items():
        if rank not in running.exits:
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                running.exits[rank] = os.waitstatus_to_exitcode(status)
    if len(running.exits) == len(running.processes):
        return True
    # A rank that failed leaves the others waiting for it: they get a moment to fail by themselves.
    if running.exits and time.monotonic() < running.deadline:
        running.deadline = min(running.deadline, time.monotonic() + 5)
    if time.monotonic() >= running.deadline:
        running.hung = running.hung or not running.exits
        for process, rank in running.processes.items():
            if rank not in running.exits:
                os.kill(process, signal.SIGKILL)
    return False


def _result(running: _Running) -> dict[str, Any]:
    ranks = []
    for rank in range(running.trial["ranks"]):
        path = running.folder / f"rank{rank}.json"
        if path.exists():
            ranks.append(json.loads(path.read_text("utf-8")))
            continue
        log = running.folder / f"rank{rank}.log"
        said = log.read_text("utf-8", "replace") if log.exists() else ""
        reason = "hung" if running.exits[rank] == -signal.SIGKILL else f"exit {running.exits[rank]}"
        ranks.append({"reached": None, "error": reason, "traceback": said[-4000:], "seen": {}})
    return {"name": running.trial["name"], "hung": running.hung, "ranks": ranks}


# --- one rank ---------------------------------------------------------------------------------------------------------


def _be_a_rank(trial: dict[str, Any], rank: int, folder: Path) -> None:
    """Runs one rank of a trial in this process, writes what became of it, and ends the process."""
    code = 1
    try:
        log = os.open(folder / f"rank{rank}.log", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(trial["ranks"]),
            # As DeepSpeed's own launcher sets them for one node.
            LOCAL_SIZE=str(trial["ranks"]),
            CROSS_RANK="0",
            CROSS_SIZE="1",
            # Looked for, but not used: the ranks meet in a file.
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT="29500",
        )
        os.chdir(folder)
        # Where a rank hangs, its log says at what.
        faulthandler.dump_traceback_later(trial["timeout"] * 0.9, file=2)
        result: dict[str, Any] = {"reached": None, "error": None, "traceback": None, "seen": {}}
        try:
            _run(trial, rank, folder, result)
        except Exception as error:
            result.update(error=_in_one_line(error), traceback=traceback.format_exc())
        (folder / f"rank{rank}.part").write_text(json.dumps(result), "utf-8")
        (folder / f"rank{rank}.part").rename(folder / f"rank{rank}.json")
        code = 0
    finally:
        # Without the interpreter's own clean-up, which would wait for the other ranks.
        os._exit(code)


def _run(trial: dict[str, Any], rank: int, folder: Path, result: dict[str, Any]) -> None:
    import deepspeed
    import torch
    from deepspeed.runtime.tensor_parallel.init_utils import load_ds_config

    torch.manual_seed(0)
    deepspeed.init_distributed(
        dist_backend="gloo",
        auto_mpi_discovery=False,
        init_method=f"file://{folder / 'rendezvous'}",
        rank=rank,
        world_size=trial["ranks"],
        verbose=False,
    )
    stages = trial["pipeline_stages"]
    width = measure.WIDTH
    layers = [torch.nn.Linear(width, width), torch.nn.Tanh(), torch.nn.Linear(width, width)]
    model: Any = torch.nn.Sequential(*layers)
    truth = copy.deepcopy(model).double()
    if stages:
        model = deepspeed.pipe.PipelineModule(layers, num_stages=stages, loss_fn=measure.loss_of)
    optimizer = _client_optimizer(trial["client_optimizer"], model)
    scheduler = _client_scheduler if trial["client_scheduler"] else None
    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=[parameter for parameter in model.parameters() if parameter.requires_grad],
        optimizer=optimizer,
        lr_scheduler=scheduler,
        config=_kept_inside(folder, load_ds_config(trial["config"])),
    )
    result["reached"] = "start"
    if trial["step"]:
        steps: list[dict[str, Any]] = []
        with contextlib.suppress(SystemExit):  # the steps that are missing tell of it
            for number in range(trial["steps"]):
                steps.append(_optimizer_step(engine, trial, rank, truth, number))
        result["reached"] = "first step"
        result["seen"] = {"steps": steps} | {
            # The expressions stand in the tests, beside what is made of them.
            name: eval(expression, {"engine": engine, "torch": torch, "deepspeed": deepspeed})
            for name, expression in trial["look"].items()
        }


def _kept_inside(folder: Path, values: Any) -> Any:
    """The values with every absolute path below `folder`: DeepSpeed makes the folders that a config names."""
    if isinstance(values, dict):
        return {key: _kept_inside(folder, value) for key, value in values.items()}
    return f"{folder}{values}" if isinstance(values, str) and values.startswith("/") else values


def _client_optimizer(kind: str | None, model: Any) -> Any:
    """The optimizer that the script passes: None, torch's AdamW, or DeepSpeed's own for offloading."""
    import torch
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    if kind is None:
        return None
    return {"torch": torch.optim.AdamW, "deepspeed": DeepSpeedCPUAdam}[kind](model.parameters(), lr=1e-3)


def _client_scheduler(optimizer: Any) -> Any:
    import torch

    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)


def _optimizer_step(engine: Any, trial: dict[str, Any], rank: int, truth: Any, number: int) -> dict[str, Any]:
    """One optimizer step on the next micro-batches; what it did, if the trial asks for it."""
    pipelined = bool(trial["pipeline_stages"])
    # A fraction is accepted, and the first whole number past it ends the window.
    micro_batches = math.ceil(engine.gradient_accumulation_steps())
    if not pipelined:
        # ZenFlow counts none where it is to find its interval by itself.
        micro_batches = min(max(micro_batches, 1), MICRO_BATCHES)
    data = [measure.micro_batch(rank, number * micro_batches + index) for index in range(micro_batches)]
    if not trial["measure"]:
        _train(engine, pipelined, data)
        return {}
    rates = [group["lr"] for group in engine.optimizer.param_groups]
    before = measure.parameters_of(engine)
    _train(engine, pipelined, data)
    done = {"lr": rates[0], "norm": _number(engine.get_global_grad_norm())}
    if number == 0:
        gradient = measure.true_gradient(truth, trial["ranks"], len(data))
        done |= measure.measured_update(before, measure.parameters_of(engine), gradient)
    return done


def _train(engine: Any, pipelined: bool, data: list[Any]) -> None:
    """One window; the last of the micro-batches is made the boundary where the config asks for more of them."""
    import torch

    dtype = next((parameter.dtype for parameter in engine.module.parameters()), torch.float32)
    data = [(inputs.to(dtype), targets.to(dtype)) for inputs, targets in data]
    if pipelined:
        engine.train_batch(iter(data))
        return
    for number, (inputs, targets) in enumerate(data, start=1):
        loss = measure.loss_of(engine(inputs), targets)
        if number == MICRO_BATCHES and engine.gradient_accumulation_steps() > MICRO_BATCHES:
            engine.set_gradient_accumulation_boundary(True)
        engine.backward(loss)
        engine.step()


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _in_one_line(error: BaseException) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 400 else text[:397] + "..."


if __name__ == "__main__":
    main(*sys.argv[1:])
