"""What the installed DeepSpeed says to a config when it loads it: the first tier of truth, in about a millisecond.

    load_file(path, launch)        as `deepspeed.initialize(config=path)` does
    load_values(values, launch)    as `deepspeed.initialize(config=values)` does

It runs DeepSpeed's own code on a job that only seems to have `launch.world_size` ranks: all that `initialize` does with a
config before it touches the model. That is to read the file and to construct `DeepSpeedConfig`, which is called loading
here, and besides to lay out the mesh that the config asks for and to look for tensor parallelism; what dies of those two
is refused at start. Nothing of DeepSpeed is replaced but the two questions that `DeepSpeedConfig` asks of the process
group: which rank, and how many.
"""

from __future__ import annotations

import contextlib
import copy
import os
import resource
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ds_accum.config.launch import Launch
from ds_accum.lint.diagnostic import When

# A test run on a machine with a GPU is about the same configs as one without.
os.environ.setdefault("DS_ACCELERATOR", "cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What DeepSpeed did: `error` is the exception that it died of, in one line, None if it went on; `when` it died."""

    error: str | None = None
    when: When = When.LOAD

    @property
    def refused(self) -> bool:
        return self.error is not None


def load_file(path: str | Path, launch: Launch) -> Verdict:
    """DeepSpeed's verdict on a config file. The launch must have a world size."""
    from deepspeed.runtime.tensor_parallel.init_utils import load_ds_config

    with _undisturbed():
        try:
            values = load_ds_config(str(path))
        except Exception as error:
            return Verdict(error=in_one_line(error))
        return _verdict(values, launch)


def load_values(values: Mapping[str, Any], launch: Launch) -> Verdict:
    """DeepSpeed's verdict on a config that the script hands over as a dictionary. The launch must have a world size.

    DeepSpeed gets a copy: it writes into what it is given.
    """
    with _undisturbed():
        return _verdict(copy.deepcopy(dict(values)), launch)


def in_one_line(error: BaseException) -> str:
    """`"KeyError: 'stage'"`: the type and the message, without line ends, cut to a readable length."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 400 else text[:397] + "..."


def _verdict(values: Any, launch: Launch) -> Verdict:
    assert launch.world_size is not None, "a job always has a world size"
    when = When.LOAD
    try:
        if "sequence_parallel_size" not in values or "data_parallel_size" not in values:
            _construct(values, launch, mesh=None)
        else:
            when = When.START
            # A mesh that does not fill the world fails on the ranks outside it, when the config asks for their group.
            for rank in sorted({0, launch.world_size - 1}):
                with _mesh(values, rank, launch.world_size) as mesh:
                    when = When.LOAD if rank == 0 else When.START
                    # With a pipeline module `initialize` keeps the mesh to itself.
                    _construct(copy.deepcopy(values), launch, None if launch.pipeline_parallel_size > 1 else mesh)
        when = When.START
        # As `initialize` asks, on the way; it then turns on a mode that only building an engine would notice.
        autotp_size = values.get("tensor_parallel", {}).get("autotp_size", 0)
        _ = autotp_size and autotp_size > 0
    except Exception as error:
        return Verdict(error=in_one_line(error), when=when)
    return Verdict()


def _construct(values: Any, launch: Launch, mesh: Any) -> None:
    from deepspeed.runtime import config as deepspeed_config

    real = deepspeed_config.dist
    deepspeed_config.dist = _World(launch.world_size)
    try:
        deepspeed_config.DeepSpeedConfig(values, _model_parallel_unit(launch), mesh_device=mesh)
    finally:
        deepspeed_config.dist = real


# --- a job that is not running ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _World:
    """What `DeepSpeedConfig` asks of torch.distributed."""

    world_size: int | None

    def get_rank(self) -> int:
        return 0

    def get_world_size(self, group: Any = None) -> int | None:
        import torch.distributed

        return self.world_size if group is None else torch.distributed.get_world_size(group)


@dataclass(frozen=True, slots=True)
class _MegatronUnit:
    """The `mpu` of a script with tensor, pipeline or context parallelism: it knows its data parallel size."""

    data_parallel_size: int

    def get_data_parallel_world_size(self) -> int:
        return self.data_parallel_size


@dataclass(frozen=True, slots=True)
class _UlyssesUnit:
    """The `mpu` of a script with Ulysses sequence parallelism: DeepSpeed divides the world by its size itself."""

    sequence_parallel_size: int

    def get_sequence_parallel_world_size(self) -> int:
        return self.sequence_parallel_size


def _model_parallel_unit(launch: Launch) -> _MegatronUnit | _UlyssesUnit | None:
    if launch.model_parallel_size == 1:
        return None
    if launch.model_parallel_size == launch.sequence_parallel_size:
        return _UlyssesUnit(launch.sequence_parallel_size)
    layout = launch.layout()
    assert layout is not None
    return _MegatronUnit(layout.data_parallel_size)


@contextlib.contextmanager
def _mesh(values: Mapping[str, Any], rank: int, world_size: int) -> Iterator[Any]:
    """The mesh of a config as torch lays it out for one rank.

    torch's own "fake" process group has any number of ranks, and sends nothing.
    """
    import torch.distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    # torch wraps the hook for uncaught exceptions once per process group, and never unwraps it.
    hook = sys.excepthook
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world_size)
    try:
        shape = (values["data_parallel_size"], values["sequence_parallel_size"])
        yield init_device_mesh("cpu", shape, mesh_dim_names=("data_parallel", "sequence_parallel"))
    finally:
        torch.distributed.destroy_process_group()
        sys.excepthook = hook


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """DeepSpeed neither logs nor fails by a warning: its verdict is its exception alone."""
    from deepspeed.utils import logger

    # Setting a level would make every logger of the process forget what it knows, which costs more than the config.
    disabled, logger.disabled = logger.disabled, True
    try:
        with warnings.catch_warnings(), _little_memory():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.disabled = disabled


@contextlib.contextmanager
def _little_memory() -> Iterator[None]:
    """One more gigabyte is all that loading a config may take, where the system can be told so.

    DeepSpeed multiplies batch sizes of any type: a micro batch of [1] and 2**31 accumulation steps are a list of 16
    GiB.
    """
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    except OSError:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**30, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
