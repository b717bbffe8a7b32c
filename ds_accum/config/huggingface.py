"""What Hugging Face's Trainer makes of a DeepSpeed config: fills in "auto", and compares the rest with its arguments.

    filled = fill_in(values, arguments, world_size=4)
    filled.values                      # what DeepSpeed gets
    find_mismatches(values, arguments, world_size=4)      # what Trainer refuses to start with

Both follow one list, as `trainer_config_process` and `trainer_config_finalize` do (transformers 5.24,
integrations/deepspeed.py): a key that says "auto" gets the argument; any other value must equal it; a key that is not
there is neither filled in nor compared. Trainer raises once, at start, with all mismatches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ds_accum.config.document import Path
from ds_accum.config.paths import value_at
from ds_accum.config.resolve import ACCUMULATION, GLOBAL_BATCH, MICRO_BATCH

if TYPE_CHECKING:
    from ds_accum.config.training_arguments import TrainingArguments

__all__ = ["FILLED_IN", "Filled", "Mismatch", "fill_in", "find_mismatches"]

# Where an accumulation of 1 comes from that no file says (`DeepSpeedPlugin.__post_init__` of Accelerate).
_ABSENT_ACCUMULATION = "Accelerate's value where the key is missing"


class _Filling(NamedTuple):
    """A key that is filled in: the arguments that its value comes from, and whether another value is refused."""

    path: Path
    arguments: tuple[str, ...]
    must_match: bool = True


# In Trainer's order. The sizes of ZeRO's buckets come from the model.
_FILLINGS: tuple[_Filling, ...] = (
    _Filling((MICRO_BATCH,), ("per_device_train_batch_size",)),
    _Filling((ACCUMULATION,), ("gradient_accumulation_steps",)),
    _Filling((GLOBAL_BATCH,), ("per_device_train_batch_size", "gradient_accumulation_steps")),
    _Filling(("gradient_clipping",), ("max_grad_norm",)),
    _Filling(("optimizer", "params", "lr"), ("learning_rate",)),
    _Filling(("optimizer", "params", "betas"), ("adam_beta1", "adam_beta2")),
    _Filling(("optimizer", "params", "eps"), ("adam_epsilon",)),
    _Filling(("optimizer", "params", "weight_decay"), ("weight_decay",)),
    _Filling(("scheduler", "params", "warmup_min_lr"), (), must_match=False),
    _Filling(("scheduler", "params", "warmup_max_lr"), ("learning_rate",)),
    _Filling(("fp16", "enabled"), ("fp16", "fp16_full_eval")),
    _Filling(("bf16", "enabled"), ("bf16", "bf16_full_eval")),
    _Filling(("zero_optimization", "reduce_bucket_size"), (), must_match=False),
    _Filling(("zero_optimization", "stage3_prefetch_bucket_size"), (), must_match=False),
    _Filling(("zero_optimization", "stage3_param_persistence_threshold"), (), must_match=False),
    _Filling(("scheduler", "params", "total_num_steps"), ("max_steps",)),
    _Filling(("scheduler", "params", "warmup_num_steps"), ("warmup_steps", "warmup_ratio", "max_steps")),
)

FILLED_IN: frozenset[Path] = frozenset(filling.path for filling in _FILLINGS)
"""Where "auto" has a meaning; anywhere else it reaches DeepSpeed."""


class Filled(NamedTuple):
    """A config as DeepSpeed gets it.

    `sources` says of each value that came from the arguments which of them that was; `open` are the paths that say
    "auto" and whose value can't be told: they are left out of the values.
    """

    values: Mapping[str, Any]
    sources: Mapping[Path, str]
    open: frozenset[Path]


class Mismatch(NamedTuple):
    """A value that Trainer refuses, and the one that its arguments come to."""

    path: Path
    value: Any
    expected: Any
    arguments: tuple[str, ...]


def fill_in(values: Mapping[str, Any], arguments: TrainingArguments | None, world_size: int | None) -> Filled:
    """A copy of the config with every "auto" replaced that can be, and left out where nothing is known."""
    filled = dict(values)
    sources: dict[Path, str] = {}
    unfilled = set()
    for filling in _FILLINGS:
        holder: Any = filled
        if value_at(values, filling.path) != "auto":
            continue
        for key in filling.path[:-1]:
            holder[key] = dict(holder[key])
            holder = holder[key]
        value = None if arguments is None else _value(filling, arguments, world_size)
        if arguments is None or value is None:
            del holder[filling.path[-1]]
            unfilled.add(filling.path)
        else:
            holder[filling.path[-1]] = value
            sources[filling.path] = _source(filling, arguments, world_size)
    if arguments is not None and ACCUMULATION not in values:
        # Accelerate writes it down after Trainer has filled in the rest.
        filled[ACCUMULATION] = 1
        sources[(ACCUMULATION,)] = _ABSENT_ACCUMULATION
    return Filled(values=filled, sources=sources, open=frozenset(unfilled))


def find_mismatches(
    values: Mapping[str, Any], arguments: TrainingArguments, world_size: int | None
) -> Iterator[Mismatch]:
    """Every value of a config, as its file gives it, that Trainer would refuse."""
    for filling in _FILLINGS:
        value = value_at(values, filling.path)
        if value is None or value == "auto" or not filling.must_match:
            continue
        expected = _value(filling, arguments, world_size)
        if expected is not None and value != expected:
            yield Mismatch(path=filling.path, value=value, expected=expected, arguments=filling.arguments)


def _value(filling: _Filling, arguments: TrainingArguments, world_size: int | None) -> Any:
    """What Trainer puts in, None where that can't be told."""
    if not arguments.is_known(*filling.arguments):
        return None
    key = filling.path[-1]
    if key == GLOBAL_BATCH:
        per_rank = arguments["per_device_train_batch_size"] * arguments["gradient_accumulation_steps"]
        return None if world_size is None else world_size * per_rank
    if key == "betas":
        return [arguments["adam_beta1"], arguments["adam_beta2"]]
    if key == "enabled":
        return any(arguments[name] for name in filling.arguments)
    if key == "total_num_steps":
        return arguments["max_steps"] if arguments["max_steps"] > 0 else None
    if key == "warmup_num_steps":
        return _warmup_steps(arguments)
    if key == "warmup_min_lr":
        return 0
    return arguments[filling.arguments[0]] if filling.arguments else None


def _warmup_steps(arguments: TrainingArguments) -> int | None:
    """`TrainingArguments.get_warmup_steps`, and at least 1, as DeepSpeed refuses 0."""
    steps = arguments["warmup_steps"] or arguments["warmup_ratio"]
    if steps >= 1:
        return int(steps)
    if steps == 0:
        return 1
    return max(1, math.ceil(arguments["max_steps"] * steps)) if arguments["max_steps"] > 0 else None


def _source(filling: _Filling, arguments: TrainingArguments, world_size: int | None) -> str:
    """Where a value comes from: "per_device_train_batch_size of --hf-args", "the default of bf16"."""
    if filling.path == (GLOBAL_BATCH,):
        return f"{world_size} ranks x per_device_train_batch_size x gradient_accumulation_steps"
    if not filling.arguments:
        return "what Trainer fills in"
    names = [name for name in filling.arguments if name in arguments.given] or list(filling.arguments[:1])
    origins = {arguments.origin(name) for name in names}
    said = " and ".join(names)
    return f"the default of {said}" if origins == {"its default"} else f"{said} of {min(origins)}"
