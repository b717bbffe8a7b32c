"""How ranks are started: what torchrun and DeepSpeed's launcher are told, and that both really run the worker."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ds_accum.compare.jobs import Job
from ds_accum.compare.launchers import Launcher, commands
from ds_accum.compare.launching import Launch
from ds_accum.errors import UsageError
from tests.compare.runs import FAKE, is_running, misbehaving, small_spec, until, workers_in

REPOSITORY = Path(__file__).resolve().parents[2]


def told(launcher: Launcher, folder: Path, world_size: int = 2) -> list[str]:
    return [" ".join(command.arguments) for command in commands(launcher, folder, world_size=world_size, device="cpu")]


def test_local_ranks_know_their_number_and_no_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_PORT", "29500")
    monkeypatch.setenv("RANK", "7")
    started = commands(Launcher(), tmp_path, world_size=3, device="cpu")
    assert [command.rank for command in started] == [0, 1, 2]
    for rank, command in enumerate(started):
        assert command.arguments == (sys.executable, "-m", "ds_accum.compare.worker", str(tmp_path))
        assert [command.environment[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")] == [str(rank)] * 2 + ["3"]
        assert not {"MASTER_ADDR", "MASTER_PORT"} & command.environment.keys()
        assert command.environment["DS_ACCELERATOR"] == "cpu"


def test_torchrun_on_this_machine(tmp_path: Path) -> None:
    (line,) = told(Launcher(kind="torchrun", master_port=29611), tmp_path)
    assert line == (
        f"{sys.executable} -m torch.distributed.run --nnodes 1 --node-rank 0 --nproc-per-node 2 --master-addr 127.0.0.1"
        f" --master-port 29611 -m ds_accum.compare.worker {tmp_path}"
    )


def test_torchrun_on_two_hosts_goes_through_ssh_to_the_other_one(tmp_path: Path) -> None:
    here = socket.gethostname()
    launcher = Launcher(kind="torchrun", hosts={here: 4, "worker-1": 4}, master_port=29611)
    first, second = commands(launcher, tmp_path, world_size=8, device="cuda")
    assert " ".join(first.arguments) == (
        f"{sys.executable} -m torch.distributed.run --nnodes 2 --node-rank 0 --nproc-per-node 4 --master-addr {here}"
        f" --master-port 29611 -m ds_accum.compare.worker {tmp_path}"
    )
    assert second.arguments[:5] == ("ssh", "-tt", "-o", "BatchMode=yes", "worker-1")
    assert second.arguments[5].startswith(f"cd {Path.cwd()} && PYTHONPATH={REPOSITORY}")
    assert "--nnodes 2 --node-rank 1 --nproc-per-node 4" in second.arguments[5]


def test_deepspeeds_launcher_gets_the_hostfile(tmp_path: Path) -> None:
    hostfile = tmp_path / "hosts"
    launcher = Launcher(kind="deepspeed", hostfile=hostfile, hosts={"worker-0": 8, "worker-1": 8}, master_port=29611)
    (line,) = told(launcher, tmp_path, 16)
    assert line == (
        f"{sys.executable} -m deepspeed.launcher.runner --hostfile {hostfile} --master_port 29611"
        f" --no_local_rank --module ds_accum.compare.worker {tmp_path}"
    )


def test_slots_that_are_not_the_world_size_are_refused(tmp_path: Path) -> None:
    launcher = Launcher(kind="deepspeed", hostfile=Path("hosts"), hosts={"a": 8, "b": 8})
    with pytest.raises(UsageError, match="hostfile hosts has 16 slots, but the world size is 2"):
        told(launcher, tmp_path)


def test_torchrun_can_not_start_different_numbers_of_ranks(tmp_path: Path) -> None:
    launcher = Launcher(kind="torchrun", hostfile=Path("hosts"), hosts={"a": 1, "b": 2})
    with pytest.raises(UsageError, match="a with 1, b with 2"):
        told(launcher, tmp_path, 3)


@pytest.mark.parametrize("kind", ["torchrun", "deepspeed"])
def test_a_port_that_is_taken_is_one_sentence(tmp_path: Path, kind: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"can't use port {port}: address already in use") as refused:
            told(Launcher(kind=kind, master_port=port), tmp_path)
    assert "--master-port" in (refused.value.remedy or "")


@pytest.mark.engine
@pytest.mark.parametrize("kind", ["torchrun", "deepspeed"])
def test_a_launcher_really_runs_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
    misbehaving(monkeypatch, tmp_path, {})
    job = Job(kind="parity", variants=("zero-0 stock",))
    launcher = Launcher(kind=kind, folder=tmp_path, worker=(str(FAKE),))
    with Launch(job, small_spec(timeout_s=90.0), launcher) as launch:
        events = list(launch.events())
        assert launch.failure is None
    assert [event.kind for event in events] == ["started", "progress", "progress", "result", "finished"]
    assert workers_in(tmp_path) == []


@pytest.mark.engine
def test_a_launcher_whose_rank_fails_is_told_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    misbehaving(monkeypatch, tmp_path, {"zero-0 stock": "raises"})
    job = Job(kind="parity", variants=("zero-0 stock",))
    launcher = Launcher(kind="torchrun", folder=tmp_path, worker=(str(FAKE),))
    with Launch(job, small_spec(timeout_s=90.0), launcher) as launch:
        list(launch.events())
        assert (launch.failure or "").splitlines()[-1].startswith("torchrun exited with 1: ")
    assert workers_in(tmp_path) == []


def test_the_ranks_die_with_the_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL leaves nobody to tidy up; on Linux the system does."""
    program = (
        "import sys\nfrom pathlib import Path\nfrom dataclasses import replace\n"
        "from tests.compare.runs import LAUNCHER, small_spec\n"
        "from ds_accum.compare.progress import Silent\nfrom ds_accum.compare.running import Run\n"
        f"Run(small_spec(), replace(LAUNCHER, folder=Path({str(tmp_path)!r}))).run(Silent())\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=REPOSITORY,
        env={
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "FAKE_WORKER": json.dumps({"zero-0 stock": "sleeps"}),
            "FAKE_LOG": str(tmp_path / "launches.jsonl"),
        },
    )
    try:
        until(lambda: (tmp_path / "launches.jsonl").exists() and len(workers_in(tmp_path)) >= 3, seconds=60)
        ranks = [pid for pid in workers_in(tmp_path) if pid != parent.pid]
        assert len(ranks) == 2
        os.kill(parent.pid, signal.SIGKILL)
        until(lambda: not any(map(is_running, ranks)))
    finally:
        parent.kill()
        parent.wait()
