"""The options of `ds-accum plan`, and what each of them stands for in the library.

click.command(cls=SectionedCommand)(plan_options(plan))    # plan(asked=PlanOptions(...))
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import click

from ds_accum.cli.sections import option
from ds_accum.cli.sizes import read_count, read_memory, read_more_than_zero, read_size
from ds_accum.errors import UsageError

if TYPE_CHECKING:
    from fractions import Fraction

    from ds_accum.plan.cost import CostAssumptions
    from ds_accum.plan.hardware import Hardware
    from ds_accum.plan.layouts import Limits
    from ds_accum.plan.training import TrainingSetup

__all__ = ["DEFAULT_HARDWARE", "OPTIMIZERS", "PlanOptions", "plan_options"]

DEFAULT_HARDWARE = "A100-80GB"

# Those whose memory is estimated and whose config can be written: said here again, so that --help does not load them.
OPTIMIZERS = ("adamw", "adam", "lion")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """The options as given; None where one was not."""

    model: str
    global_batch_size: int | None
    tokens_per_step: int | None
    sequence_length: int
    world_size: int
    hardware: str | None
    gpus_per_node: int | None
    gpu_memory: int | None
    host_memory: int | None
    max_tensor_parallel_size: int | None
    max_pipeline_parallel_size: int | None
    max_context_parallel_size: int
    max_sequence_parallel_size: int | None
    max_expert_parallel_size: int | None
    max_micro_batch_size: int | None
    zero_stages: tuple[int, ...]
    recompute: tuple[str, ...]
    offload: bool
    max_bubble: Fraction | None
    dtype: str
    grad_accum_dtype: str
    optimizer: str
    attention: str
    kernels: str
    dropout: bool
    sequence_split: str
    compute_share: float | None
    link_share: float | None
    ports: int | None

    def gpu(self) -> Hardware:
        """The kind of GPU, with what is said of it besides."""
        from ds_accum.plan.hardware import read_hardware

        kind = read_hardware(self.hardware or DEFAULT_HARDWARE)
        return kind.override(memory_bytes=self.gpu_memory, gpus_per_node=self.gpus_per_node)

    def limits(self) -> Limits:
        """What may be considered."""
        from ds_accum.plan.layouts import Limits

        given: dict[str, Any] = {
            field.name: getattr(self, field.name) for field in fields(Limits) if hasattr(self, field.name)
        }
        return Limits(host_memory_bytes=self.host_memory, **given)

    def training(self) -> TrainingSetup:
        """What is the same for all layouts. Raises UsageError where gradients would add up in the other 16-bit type."""
        from ds_accum.plan.training import TrainingSetup

        if {self.dtype, self.grad_accum_dtype} == {"bf16", "fp16"}:
            raise UsageError(
                f"gradients of {self.dtype} do not add up in {self.grad_accum_dtype}",
                remedy=f"set --grad-accum-dtype to fp32 or {self.dtype}",
            )
        given: dict[str, Any] = {
            "dtype": self.dtype,
            "optimizer": self.optimizer,
            # The model's own where it is not said otherwise, so that nothing needless is written into the config.
            **dict.fromkeys(
                ("grad_accum_dtype", "communication_dtype"),
                None if self.dtype in ("fp32", self.grad_accum_dtype) else self.grad_accum_dtype,
            ),
        }
        return TrainingSetup(
            zero_stage=1,
            micro_batch_size=1,
            gradient_accumulation_steps=1,
            sequence_length=self.sequence_length,
            flash_attention=self.attention == "flash",
            fused_kernels=self.kernels == "fused",
            dropout=self.dropout,
            megatron_sequence_parallel=self.sequence_split == "yes",
            **given,
        )

    def assumptions(self) -> CostAssumptions:
        """What software gets out of the hardware."""
        from ds_accum.plan.cost import CostAssumptions

        given: dict[str, Any] = {
            "compute_share_of_peak": self.compute_share,
            "link_share_of_peak": self.link_share,
            "ports_of_a_ring": self.ports,
        }
        return CostAssumptions(**{name: value for name, value in given.items() if value is not None})

    def notes(self) -> tuple[str, ...]:
        """What was taken for granted because it was not said, or is unusual, a sentence each."""
        from ds_accum.reporting import bytes_text

        said = []
        kind = self.gpu()
        if self.hardware is None:
            known = "" if self.gpu_memory is None else f" with {bytes_text(kind.memory_bytes)}"
            said.append(f"no --hardware was given: the GPUs are taken for {DEFAULT_HARDWARE}{known}")
        elif self.gpu_memory is not None:
            said.append(f"the memory of a GPU is taken for {bytes_text(kind.memory_bytes)}, as asked")
        rest = self.world_size % kind.gpus_per_node
        if rest and self.world_size > kind.gpus_per_node:
            said.append(
                f"{self.world_size} GPUs are no multiple of {kind.gpus_per_node} a node: the last node lends {rest}"
            )
        return tuple(said)


def plan_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options to a command, which gets them as one argument, `asked`."""
    names = [field.name for field in fields(PlanOptions)]

    @functools.wraps(command)
    def with_options(**arguments: Any) -> Any:
        asked = PlanOptions(**{name: arguments.pop(name) for name in names})
        return command(asked=asked, **arguments)

    for add in reversed(_OPTIONS):
        with_options = add(with_options)
    return with_options


def _read_stages(context: click.Context, parameter: click.Parameter, text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    if not all(word in ("0", "1", "2", "3") for word in words):
        raise click.BadParameter(f"ZeRO has the stages 0, 1, 2 and 3, not {text[:40]!r}", context, parameter)
    return tuple(sorted({int(word) for word in words}))


def _read_recompute(context: click.Context, parameter: click.Parameter, text: str) -> tuple[str, ...]:
    kinds = ("none", "selective", "full")
    words = {word.strip() for word in text.split(",")}
    if not words <= set(kinds):
        raise click.BadParameter(f"must be of none, selective and full, not {text[:40]!r}", context, parameter)
    return tuple(kind for kind in kinds if kind in words)


def _read_share(context: click.Context, parameter: click.Parameter, text: str | None) -> Fraction | None:  # noqa: ARG001
    if text is None:
        return None
    from ds_accum.cli.schedule_values import read_share

    return read_share(text, option=parameter.opts[0])


def _read_positive_share(context: click.Context, parameter: click.Parameter, share: float | None) -> float | None:
    if share is None:
        return None
    read_more_than_zero(context, parameter, share)
    if share > 1:
        raise click.BadParameter(f"must be at most 1, not {share:g}", context, parameter)
    return share


_TARGET = "Target, exact: one of the first two"
_GPUS = "GPUs"
_LIMITS = "Limits of the search"
_TRAINING = "Training"
_ASSUMED = "What the time is reckoned with"


def _size(*names: str, section: str, help: str, **attributes: Any) -> Callable[[Any], Any]:  # noqa: A002
    return option(*names, type=int, callback=read_size, metavar="N", section=section, help=help, **attributes)


_OPTIONS = (
    option(
        "--model",
        required=True,
        metavar="NAME",
        section="Model",
        help="A name of configs/models, llama-2-70b for instance, or a Hugging Face config.json, or its folder.",
    ),
    option(
        "--global-batch",
        "global_batch_size",
        callback=read_count,
        metavar="N",
        section=_TARGET,
        help="Samples of one optimizer step, over all GPUs.",
    ),
    option(
        "--tokens-per-step",
        callback=read_count,
        metavar="N",
        section=_TARGET,
        help="The same in tokens: 4M is 4,000,000, 4Mi is 4,194,304.",
    ),
    _size("--seq-len", "sequence_length", section=_TARGET, required=True, help="Sequence length in tokens."),
    _size("--world-size", "--gpus", "world_size", section=_GPUS, required=True, help="How many, all nodes together."),
    option(
        "--hardware",
        metavar="NAME",
        section=_GPUS,
        help=f"A kind of configs/hardware, H100-80GB or h100, or a file like those; {DEFAULT_HARDWARE} unless given.",
    ),
    _size("--gpus-per-node", section=_GPUS, help="Instead of what the kind says."),
    option(
        "--gpu-memory",
        callback=read_memory,
        metavar="BYTES",
        section=_GPUS,
        help="Instead of what the kind says: 64GB, 60GiB.",
    ),
    option(
        "--host-memory",
        callback=read_memory,
        metavar="BYTES",
        section=_GPUS,
        help="Of one node, for --offload: 2TB. Not limited unless given.",
    ),
    _size("--max-tp", "max_tensor_parallel_size", section=_LIMITS, help="Tensor parallel; a node's GPUs unless given."),
    _size("--max-pp", "max_pipeline_parallel_size", section=_LIMITS, help="Pipeline parallel; a stage a layer."),
    _size("--max-sp", "max_sequence_parallel_size", section=_LIMITS, help="Ulysses; a node's GPUs unless given."),
    _size(
        "--max-cp",
        "max_context_parallel_size",
        section=_LIMITS,
        default=1,
        show_default=True,
        help="Context parallel, which DeepSpeed has none of its own.",
    ),
    _size("--max-ep", "max_expert_parallel_size", section=_LIMITS, help="Expert parallel; the experts unless given."),
    _size("--max-micro-batch", "max_micro_batch_size", section=_LIMITS, help="Samples of one forward on one GPU."),
    option(
        "--zero-stages",
        callback=_read_stages,
        default="0,1,2,3",
        show_default=True,
        metavar="LIST",
        section=_LIMITS,
        help="ZeRO stages that may be used.",
    ),
    option(
        "--recompute",
        callback=_read_recompute,
        default="none,selective,full",
        show_default=True,
        metavar="LIST",
        section=_LIMITS,
        help="Activation recompute that may be used.",
    ),
    option(
        "--offload",
        is_flag=True,
        section=_LIMITS,
        help="Optimizer states, and at stage 3 parameters, may lie in the memory of the host.",
    ),
    option(
        "--max-bubble",
        callback=_read_share,
        metavar="SHARE",
        section=_LIMITS,
        help="Largest idle share of the pipeline: 0.15, or 15%.",
    ),
    option(
        "--dtype",
        type=click.Choice(["bf16", "fp16", "fp32"]),
        default="bf16",
        show_default=True,
        metavar="TYPE",
        section=_TRAINING,
        help="Of parameters: bf16, fp16, fp32.",
    ),
    option(
        "--grad-accum-dtype",
        type=click.Choice(["fp32", "bf16", "fp16"]),
        default="fp32",
        show_default=True,
        metavar="TYPE",
        section=_TRAINING,
        help="What gradients add up and travel in: fp32, bf16, fp16.",
    ),
    option(
        "--optimizer",
        type=click.Choice(OPTIMIZERS),
        default="adamw",
        show_default=True,
        metavar="NAME",
        section=_TRAINING,
        help=f"{', '.join(OPTIMIZERS)}.",
    ),
    option(
        "--attention",
        type=click.Choice(["flash", "plain"]),
        default="flash",
        show_default=True,
        metavar="KIND",
        section=_TRAINING,
        help="Whether the scores of attention are kept: flash keeps none, plain all.",
    ),
    option(
        "--kernels",
        type=click.Choice(["fused", "plain"]),
        default="fused",
        show_default=True,
        metavar="KIND",
        section=_TRAINING,
        help="Norms, activation functions and loss: fused as in Megatron, or plain PyTorch as in transformers.",
    ),
    option("--dropout", is_flag=True, section=_TRAINING, help="The model drops out, and keeps masks."),
    option(
        "--megatron-sequence-parallel",
        "sequence_split",
        type=click.Choice(["yes", "no"]),
        default="yes",
        show_default=True,
        metavar="YES/NO",
        section=_TRAINING,
        help="Tensor parallel ranks split norms and residuals by tokens, as in Megatron-LM, where they divide evenly.",
    ),
    option(
        "--compute-share",
        type=float,
        callback=_read_positive_share,
        metavar="SHARE",
        section=_ASSUMED,
        help="Of peak, in matrix multiplication; 0.69 unless given.",
    ),
    option(
        "--link-share",
        type=float,
        callback=_read_positive_share,
        metavar="SHARE",
        section=_ASSUMED,
        help="Of a link's speed, in a collective; 0.8 unless given.",
    ),
    _size("--ports", section=_ASSUMED, help="Network ports of a node that a ring uses; 1 unless given, up to all."),
)
