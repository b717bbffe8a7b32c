"""How the ranks of a launch are started: by us on this machine, or by torchrun's or DeepSpeed's launcher on several."""

from __future__ import annotations

import os
import shlex
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from ds_accum.errors import UsageError

__all__ = ["Command", "Launcher", "LauncherKind", "commands"]

LauncherKind = Literal["local", "torchrun", "deepspeed"]

_PACKAGE_ROOT = Path(__file__).resolve().parents[2]
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_ADDRESSES = ("MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """Who starts the ranks, where.

    `hosts`: slots by host, in the order of `hostfile`; empty for this machine alone. `folder` is where the launches
    have their folders, which every host must see; None for this machine's temporary one. `worker`: Python's arguments
    before the launch's folder, "-m" and a module or a file.
    """

    kind: LauncherKind = "local"
    hostfile: Path | None = None
    hosts: Mapping[str, int] = field(default_factory=dict)
    master_port: int | None = None
    folder: Path | None = None
    worker: tuple[str, ...] = ("-m", "ds_accum.compare.worker")


class Command(NamedTuple):
    """One process to start: a rank with its number, or a launcher (None)."""

    rank: int | None
    arguments: tuple[str, ...]
    environment: Mapping[str, str]


def commands(launcher: Launcher, folder: Path, *, world_size: int, device: str) -> list[Command]:
    """What is started for a launch. Raises UsageError where the slots are not as many, or the port is taken."""
    environment = _environment(world_size, device)
    if launcher.kind == "local":
        # Gloo would else look for the interface of this machine's name, which may lead nowhere.
        local = {"GLOO_SOCKET_IFNAME": "lo", **environment} if sys.platform == "linux" else environment
        return [
            Command(
                rank,
                (sys.executable, *launcher.worker, str(folder)),
                {**local, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size)},
            )
            for rank in range(world_size)
        ]
    if launcher.hosts and sum(launcher.hosts.values()) != world_size:
        raise UsageError(
            f"hostfile {launcher.hostfile} has {sum(launcher.hosts.values())} slots, but the world size is"
            f" {world_size}",
            remedy="give --world-size the sum of the slots",
        )
    port = _port(launcher)
    if launcher.kind == "deepspeed":
        return [Command(None, _deepspeed(launcher, folder, world_size, port), environment)]
    return [Command(None, arguments, environment) for arguments in _torchrun(launcher, folder, world_size, port)]


def _deepspeed(launcher: Launcher, folder: Path, world_size: int, port: int) -> tuple[str, ...]:
    """DeepSpeed's launcher reaches the hosts itself, with pdsh; without a hostfile it starts the ranks here."""
    # It looks for /job/hostfile unless it is told of another one, which need not be there.
    where: tuple[str, ...] = ("--hostfile", str(launcher.hostfile or folder / "no_hostfile"))
    if launcher.hostfile is None:
        where = (*where, "--num_gpus", str(world_size))
    return (
        *(sys.executable, "-m", "deepspeed.launcher.runner", *where, "--master_port", str(port), "--no_local_rank"),
        *_module(launcher, "--module"),
        str(folder),
    )


def _torchrun(launcher: Launcher, folder: Path, world_size: int, port: int) -> list[tuple[str, ...]]:
    """One torchrun a host, on other hosts through ssh; the first host is where the ranks meet."""
    hosts = launcher.hosts or {"localhost": world_size}
    first = next(iter(hosts))
    if len(set(hosts.values())) > 1:
        raise UsageError(
            f"torchrun starts as many ranks on each host, and hostfile {launcher.hostfile} has"
            f" {', '.join(f'{host} with {slots}' for host, slots in hosts.items())}",
            remedy="use --launcher deepspeed, or give each host as many slots",
        )
    made = []
    for node, (host, slots) in enumerate(hosts.items()):
        arguments = (
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes", str(len(hosts)), "--node-rank", str(node)),
            *("--nproc-per-node", str(slots), "--master-addr", "127.0.0.1" if len(hosts) == 1 else first),
            *("--master-port", str(port), *_module(launcher, "-m"), str(folder)),
        )
        made.append(arguments if _is_here(host) else _through_ssh(host, arguments))
    return made


def _through_ssh(host: str, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """-tt: the remote side ends when ours does."""
    there = shlex.join(arguments)
    path = os.pathsep.join(filter(None, [str(_PACKAGE_ROOT), os.environ.get("PYTHONPATH")]))
    remote = f"cd {shlex.quote(str(Path.cwd()))} && PYTHONPATH={shlex.quote(path)} {there}"
    return ("ssh", "-tt", "-o", "BatchMode=yes", host, remote)


def _module(launcher: Launcher, flag: str) -> tuple[str, ...]:
    """The worker as a launcher takes it: a module behind its flag, or a file."""
    return (flag, *launcher.worker[1:]) if launcher.worker[0] == "-m" else launcher.worker


def _environment(world_size: int, device: str) -> dict[str, str]:
    """Ours, with what finds this package, and without what a launcher that started us has said of another job."""
    environment = {name: value for name, value in os.environ.items() if name not in _ADDRESSES}
    path = [str(_PACKAGE_ROOT), *filter(None, [environment.get("PYTHONPATH")])]
    environment |= {"PYTHONPATH": os.pathsep.join(path), "PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1"}
    # As many threads as leave each rank its share of the cores: more would only wait for each other.
    environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // world_size)))
    if device == "cpu":
        environment["DS_ACCELERATOR"] = "cpu"
    return environment


def _port(launcher: Launcher) -> int:
    """The port that was asked for, or one that is free; raises UsageError where it is taken."""
    asked = launcher.master_port
    if asked is not None and launcher.hosts and not _is_here(next(iter(launcher.hosts))):
        return asked
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", asked or 0))
        except OSError as error:
            raise UsageError.because(
                f"can't use port {asked}", error, remedy="give another --master-port, or none: a free one is then taken"
            ) from error
        port: int = listener.getsockname()[1]
        return port


def _is_here(host: str) -> bool:
    return host in _LOCAL_NAMES or host == socket.gethostname()
