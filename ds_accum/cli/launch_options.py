"""The options that describe a launch, and the launches that they describe, one a world size.

click.command(cls=SectionedCommand)(launch_options(lint))    # lint(launch=LaunchOptions(...))
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ds_accum.cli.sections import option
from ds_accum.cli.shared_options import TRAINER_OPTIONS, layout_options, world_options
from ds_accum.cli.sizes import read_size
from ds_accum.errors import UsageError

if TYPE_CHECKING:
    from ds_accum.config.checkpoint import Checkpoint
    from ds_accum.config.launch import Launch
    from ds_accum.config.schema import Version
    from ds_accum.config.training_arguments import TrainingArguments

__all__ = ["ACCELERATORS", "ENGINES", "FRAMEWORKS", "FRAMEWORK_ALIASES", "LaunchOptions", "launch_options"]

# What `ds_accum.config.launch` holds: said here again, so that --help does not load it.
FRAMEWORKS = ("raw", "huggingface", "accelerate", "lightning", "gpt-neox")
FRAMEWORK_ALIASES = {"hf": "huggingface"}
ENGINES = ("stock", "ds-accum")
ACCELERATORS = ("cuda", "cpu", "xpu", "npu", "mps", "hpu", "mlu", "sdaa", "supa", "klxpu")

_YES_NO = click.Choice(["yes", "no"])


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """The options as given; None where one was not."""

    world_size: tuple[int, ...] | None
    nodes: int | None
    gpus_per_node: int | None
    hostfile: Path | None
    tensor_parallel_size: int
    pipeline_parallel_size: int
    context_parallel_size: int
    sequence_parallel_size: int
    expert_parallel_size: int
    framework: str | None
    client_optimizer: str | None
    client_scheduler: str | None
    engine: str | None
    accelerator: str
    deepspeed_version: str | None
    sequence_length: int | None
    hf_args: Path | None
    hf_arg: tuple[str, ...]
    resume: Path | None

    def world_sizes(self) -> tuple[int, ...]:
        """The world sizes to check, empty if none is known. Raises UsageError where two options disagree."""
        said: list[tuple[str, tuple[int, ...]]] = []
        if self.world_size is not None:
            said.append((f"--world-size {', '.join(map(str, self.world_size))}", self.world_size))
        if self.nodes is not None and self.gpus_per_node is not None:
            product = self.nodes * self.gpus_per_node
            said.append((f"--nodes {self.nodes} x --gpus-per-node {self.gpus_per_node} = {product}", (product,)))
        elif self.nodes is not None or self.gpus_per_node is not None:
            given, missing = ("--nodes", "--gpus-per-node")[:: 1 if self.gpus_per_node is None else -1]
            raise UsageError(f"{given} says nothing without {missing}", remedy=f"add {missing}, or use --world-size")
        if self.hostfile is not None:
            from ds_accum.cli.hostfile import read_hostfile

            slots = sum(read_hostfile(self.hostfile).values())
            said.append((f"--hostfile {self.hostfile} = {slots} slots", (slots,)))
        for other, sizes in said[1:]:
            if sizes != said[0][1]:
                raise UsageError(f"{said[0][0]} contradicts {other}", remedy="give only one of them")
        return said[0][1] if said else ()

    def version(self) -> tuple[Version, str]:
        """The DeepSpeed release to judge for, and where that comes from."""
        from ds_accum.cli.installed_deepspeed import release_to_judge_for

        return release_to_judge_for(self.deepspeed_version)

    def hf_arguments(self) -> TrainingArguments | None:
        """What Trainer is given: the file's arguments, and the single ones over them. Raises UsageError."""
        if self.hf_args is None and not self.hf_arg:
            return None
        if self.framework in ("raw", "lightning", "gpt-neox"):
            raise UsageError(
                f"--framework {self.framework} has no use for {'--hf-arg' if self.hf_args is None else '--hf-args'}",
                remedy="leave one of them out",
            )
        from ds_accum.config.training_arguments import TrainingArguments, read_argument, read_arguments_file

        arguments = TrainingArguments(given={}) if self.hf_args is None else read_arguments_file(self.hf_args)
        for word in self.hf_arg:
            arguments = read_argument(word).over(arguments)
        return arguments

    def checkpoint(self) -> Checkpoint | None:
        """What the training continues from. Raises UsageError where there is no checkpoint."""
        if self.resume is None:
            return None
        from ds_accum.config.checkpoint import read_checkpoint

        return read_checkpoint(self.resume)

    def launches(self, version: Version) -> list[Launch]:
        """One launch a world size, or one without. Raises LayoutError where the degrees do not fit a world."""
        from ds_accum.config.launch import Launch

        given: dict[str, Any] = {
            "tensor_parallel_size": self.tensor_parallel_size,
            "pipeline_parallel_size": self.pipeline_parallel_size,
            "context_parallel_size": self.context_parallel_size,
            "sequence_parallel_size": self.sequence_parallel_size,
            "expert_parallel_size": self.expert_parallel_size,
            "deepspeed_version": version,
            "framework": FRAMEWORK_ALIASES.get(self.framework or "", self.framework),
            "client_optimizer": _truth(self.client_optimizer),
            "client_scheduler": _truth(self.client_scheduler),
            "engine": self.engine,
            "accelerator": self.accelerator,
            "sequence_length": self.sequence_length,
            "hf_arguments": self.hf_arguments(),
            "checkpoint": self.checkpoint(),
        }
        launches = [Launch(world_size=size, **given) for size in self.world_sizes() or (None,)]
        for launch in launches:
            launch.layout()
        return launches


def launch_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options to a command, which gets them as one argument, `launch`."""
    names = [field.name for field in fields(LaunchOptions)]

    @functools.wraps(command)
    def with_launch(**arguments: Any) -> Any:
        launch = LaunchOptions(**{name: arguments.pop(name) for name in names})
        return command(launch=launch, **arguments)

    for add in reversed(_OPTIONS):
        with_launch = add(with_launch)
    return with_launch


def _truth(answer: str | None) -> bool | None:
    return None if answer is None else answer == "yes"


_SCRIPT = "Who starts DeepSpeed, and with what"

_OPTIONS = (
    *world_options("Ranks of the launch; several are checked each: 8,64 or 1-16."),
    *layout_options("Parallel layout of the script (1 unless given)", default=1),
    option(
        "--framework",
        type=click.Choice([*FRAMEWORKS, *FRAMEWORK_ALIASES]),
        metavar="NAME",
        section=_SCRIPT,
        help=f"Who reads the config first: {', '.join(FRAMEWORKS)} (hf for short); else detected by what it holds.",
    ),
    option(
        "--client-optimizer",
        type=_YES_NO,
        section=_SCRIPT,
        help="Whether the script passes its own optimizer to DeepSpeed.",
    ),
    option("--client-scheduler", type=_YES_NO, section=_SCRIPT, help="Whether it passes its own scheduler."),
    option(
        "--engine",
        type=click.Choice(ENGINES),
        section=_SCRIPT,
        help="DeepSpeed's own or ours; else ours if the file has a ds_accum block.",
    ),
    option(
        "--accelerator",
        type=click.Choice(ACCELERATORS),
        metavar="NAME",
        default="cuda",
        show_default=True,
        section=_SCRIPT,
        help=f"What it runs on: {', '.join(ACCELERATORS)}.",
    ),
    option(
        "--deepspeed-version",
        metavar="VERSION",
        section=_SCRIPT,
        help="The release to judge for; else the one installed beside ds-accum, else the newest known.",
    ),
    option(
        "--seq-len",
        "sequence_length",
        type=int,
        callback=read_size,
        metavar="N",
        section=_SCRIPT,
        help="Sequence length in tokens.",
    ),
    *TRAINER_OPTIONS,
    option(
        "--resume",
        type=click.Path(path_type=Path),
        metavar="DIR",
        section=_SCRIPT,
        help="The checkpoint that the training continues from: DeepSpeed's folder, or Trainer's.",
    ),
)
