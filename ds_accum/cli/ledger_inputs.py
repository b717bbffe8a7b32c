"""What `ds-accum ledger` works with: the batch and the layout, from a config, from options, or from both.

An option counts in place of what the config says. What neither says is not guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ds_accum.errors import BatchError, ConfigError, UsageError

if TYPE_CHECKING:
    from ds_accum.batch import BatchLedger, ParallelLayout
    from ds_accum.config.launch import Launch
    from ds_accum.config.resolve import BatchResolution
    from ds_accum.plan.training import Dtype

__all__ = ["ConfigFacts", "block_of", "facts_of", "launch_of", "layout_and_ledger", "read_config", "scheduler_notes"]

_DEGREES = ("tensor", "pipeline", "context", "sequence", "expert")
_BATCH_OPTIONS = {
    "train_batch_size": "global_batch_size",
    "train_micro_batch_size_per_gpu": "micro_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigFacts:
    """What a config says beside the batch."""

    zero_stage: int | None = None
    dtype: Dtype | None = None
    gradient_dtype: Dtype | None = None
    coalesced: bool = False
    max_live_parameters: int | None = None
    """Up to how many elements ZeRO-3 keeps what it has gathered."""

    scheduler: Mapping[str, Any] | None = None
    """The scheduler's parameters."""


def launch_of(options: Mapping[str, Any]) -> Launch:
    """The launch that the options describe. Raises UsageError where they disagree or name several worlds."""
    from dataclasses import fields

    from ds_accum.cli.launch_options import LaunchOptions
    from ds_accum.config.launch import Launch

    given = {field.name: None for field in fields(LaunchOptions)}
    given |= {name: options[name] for name in ("world_size", "nodes", "gpus_per_node", "hostfile", "hf_args", "hf_arg")}
    launch = LaunchOptions(**given)  # type: ignore[arg-type]
    worlds = launch.world_sizes()
    if len(worlds) > 1:
        other = ", or use --vary" if "vary" in options else ""
        raise UsageError(
            f"{len(worlds)} world sizes are given, and this is about one", remedy=f"give one --world-size{other}"
        )
    degrees: dict[str, Any] = {f"{name}_parallel_size": options[f"{name}_parallel_size"] or 1 for name in _DEGREES}
    return Launch(
        world_size=worlds[0] if worlds else None,
        sequence_length=options["sequence_length"],
        hf_arguments=launch.hf_arguments(),
        **degrees,
    )


def read_config(path: Path, launch: Launch) -> tuple[Mapping[str, Any], frozenset[str]]:
    """The root keys of a config, and the dotted keys that a framework fills in with what is not known.

    Raises UsageError where the file can't be read, ConfigError where it is broken or holds no config.
    """
    from ds_accum.config.document import read_bytes
    from ds_accum.config.embedded import find_configs

    try:
        document = read_bytes(path.read_bytes(), filename=str(path))
    except (OSError, ValueError) as error:
        raise UsageError.because(f"can't read config {path}", error) from error
    if document.problems:
        problem = document.problems[0]
        at = document.position(problem.span.start)
        raise ConfigError(f"{path}:{at.line}:{at.column}: {problem.message}", remedy=problem.help)
    config = next(find_configs(document, launch), None)
    if config is None:
        raise ConfigError(f"{path} holds no DeepSpeed config", remedy="give the file that DeepSpeed itself reads")
    return config.values, frozenset(".".join(map(str, place)) for place in config.filled_in)


def layout_and_ledger(
    values: Mapping[str, Any], filled_in: frozenset[str], launch: Launch, options: Mapping[str, Any]
) -> tuple[ParallelLayout, BatchLedger]:
    """Both, from a config's root keys ({} without one) and the options over them.

    Raises ConfigError and its kin where the batch does not add up, or can't be known.
    """
    from dataclasses import replace

    from ds_accum.config.resolve import resolve_batch

    values = {**values, **{key: options[name] for key, name in _BATCH_OPTIONS.items() if options[name] is not None}}
    sequence = values.get("sequence_parallel_size")
    if launch.sequence_parallel_size == 1 and isinstance(sequence, int) and not isinstance(sequence, bool):
        launch = replace(launch, sequence_parallel_size=max(1, sequence))
    launch = _with_world(launch, values, options)
    resolution = resolve_batch(values, launch)
    ledger = resolution.ledger()
    if ledger is None:
        raise _unresolved(resolution, values, filled_in, takes_arguments="vary" in options)
    return _layout(launch, options), ledger


def facts_of(values: Mapping[str, Any], launch: Launch) -> ConfigFacts:
    """What the root keys of a config say about stage, dtypes, reduction and scheduler; what is malformed says nothing,
    since `ds-accum lint` says it better."""
    zero, block, scheduler = (block_of(values, key) for key in ("zero_optimization", "ds_accum", "scheduler"))
    stage = zero.get("stage", 0) if values else None
    dtype: Dtype | None = None
    for name in ("bf16", "bfloat16", "fp16"):
        if dtype is None and block_of(values, name).get("enabled") is True:
            dtype = _sendable(name)
    if dtype is None and values:
        dtype = "fp32"
    is_split = launch.sequence_parallel_size > 1 or values.get("sequence_parallel_size", 1) != 1
    key = "seq_parallel_communication_data_type" if is_split else "communication_data_type"
    sent = values.get(key)
    parameters = block_of(scheduler, "params")
    return ConfigFacts(
        zero_stage=stage if stage in (0, 1, 2, 3) and not isinstance(stage, bool) else None,
        dtype=dtype,
        gradient_dtype=_sendable(sent),
        coalesced=block.get("reduction") == "boundary",
        max_live_parameters=_kept(zero),
        scheduler=parameters or None,
    )


def scheduler_notes(scheduler: Mapping[str, Any], steps: int, micro_batches: int, warmup: int | None) -> list[str]:
    """What the scheduler of a config says otherwise than the training's length, one sentence each."""
    from ds_accum.batch.wording import show

    notes = []
    for key, length, counted in (("total_num_steps", steps, micro_batches), ("warmup_num_steps", warmup, None)):
        written = scheduler.get(key)
        if length is None or not isinstance(written, int) or isinstance(written, bool) or written == length:
            continue
        note = f"the config's {key} is {show(written)}, and the training comes to {show(length)}"
        notes.append(f"{note}: it counts micro-batches" if written == counted else note)
    return notes


def _kept(zero: Mapping[str, Any]) -> int | None:
    """The lower of the two limits that keep ZeRO-3 from keeping everything; None where neither is set to a number."""
    limits = [zero.get(key) for key in ("stage3_max_live_parameters", "stage3_max_reuse_distance")]
    numbers = [limit for limit in limits if isinstance(limit, int | float) and 0 <= limit <= _MOST_PARAMETERS]
    return int(min(numbers)) if numbers else None


_MOST_PARAMETERS = 10**15


def _sendable(word: object) -> Dtype | None:
    """The dtype that a value of the config names; None for what names none, or one that no gradient has."""
    from ds_accum.config.support import dtype_of

    dtype = dtype_of(word)
    return None if dtype == "int8" else dtype


def block_of(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """An object of the config; an empty one where there is none, or something else."""
    from ds_accum.config.paths import mapping_at

    return mapping_at(values, (key,))


def _with_world(launch: Launch, values: Mapping[str, Any], options: Mapping[str, Any]) -> Launch:
    """The launch with a world size: the one given, or the one that data parallel or the whole batch comes to."""
    from dataclasses import replace

    from ds_accum.batch import BatchLedger
    from ds_accum.batch.wording import show

    given = options["data_parallel_size"]
    if launch.world_size is not None:
        layout = launch.layout()
        if given is not None and layout is not None and layout.data_parallel_size != given:
            raise UsageError(
                f"--data-parallel {show(given)} contradicts {layout.describe()}", remedy="give only one of them"
            )
        return launch
    if given is None:
        sizes = [values.get(key) for key in _BATCH_OPTIONS]
        if not all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in sizes):
            # Of the two commands that ask, one has the option.
            other = " or --data-parallel" if "vary" in options else ""
            raise UsageError("how many ranks see different samples is not known", remedy=f"give --world-size{other}")
        batch, micro, accumulation = sizes
        given, rest = divmod(batch, micro * accumulation)  # type: ignore[operator]
        if rest or given == 0:
            BatchLedger.solve(
                data_parallel_size=1,
                global_batch_size=batch,
                micro_batch_size=micro,
                gradient_accumulation_steps=accumulation,
            )
    return replace(launch, world_size=given * launch.model_parallel_size)


def _layout(launch: Launch, options: Mapping[str, Any]) -> ParallelLayout:
    from dataclasses import replace

    layout = launch.layout()
    assert layout is not None
    of_experts = options["expert_tensor_parallel_size"]
    return layout if of_experts is None else replace(layout, expert_tensor_parallel_size=of_experts)


def _unresolved(
    resolution: BatchResolution, values: Mapping[str, Any], filled_in: frozenset[str], *, takes_arguments: bool
) -> ConfigError:
    """Why there is no ledger, as one sentence."""
    from ds_accum.config.resolve import BatchFault

    imbalance = resolution.imbalance
    if imbalance is not None:
        message = f"{imbalance.describe()}; {imbalance.describe_legal()}"
        return BatchError(message, remedy=imbalance.describe_remedy(), imbalance=imbalance)
    if resolution.fault is BatchFault.MISSING:
        automatic = sorted(filled_in & _BATCH_OPTIONS.keys())
        if automatic:
            arguments = "its arguments with --hf-args, or " if takes_arguments else ""
            return BatchError(
                f'{automatic[0]} is "auto", which Trainer fills in',
                remedy=f"give {arguments}--micro-batch and --accumulation",
            )
        return BatchError(
            "neither global batch nor micro batch is given", remedy="give --global-batch, --micro-batch, or both"
        )
    key = resolution.fault_key
    said = "the batch sizes" if key is None else f"{key} {_said(values.get(key))}"
    kind = "come to no whole number of samples" if key is None else "is no whole number above 0"
    return BatchError(f"{said} {kind}", remedy="`ds-accum lint` says what DeepSpeed makes of it")


def _said(value: object) -> str:
    from ds_accum.batch.wording import show

    if isinstance(value, int) and not isinstance(value, bool):
        return show(value)
    text = repr(value)
    return text if len(text) <= 40 else type(value).__name__
