"""Keys that DeepSpeed ignores without a word, each with what its author most likely meant.

    for ignored in ignored_keys(context):
        ignored.path, ignored.kind, ignored.meant

The root of the config and the blocks that are plain dictionaries take what they know and leave the rest. A key there
is one of another release, one of another block, a misspelt one, or one that means nothing to DeepSpeed at all. Every
such key has exactly one kind, so that the rules about them never speak twice. The validated blocks refuse what they do
not know, unless its value is "auto".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

from ds_accum.config.document import Path
from ds_accum.config.model import BlockReading
from ds_accum.config.optimizers import resolve_optimizer, scheduler_signature
from ds_accum.config.paths import NOTHING, value_at
from ds_accum.config.resolve import ACCUMULATION, GLOBAL_BATCH, MICRO_BATCH
from ds_accum.config.schema import Block, Change, Schema, last_change, newest_version, schema_for
from ds_accum.lint.context import LintContext
from ds_accum.lint.misspelling import closest_key

__all__ = ["IgnoredKey", "Kind", "ignored_keys"]


class Kind(Enum):
    """What an ignored key most likely is."""

    MISSPELT = "a key of this block, in other letters"
    MISPLACED = "a key of another block"
    OTHER_RELEASE = "a key of a later or an earlier release"
    CLIPPING = "a clipping threshold under a name that DeepSpeed does not know"
    FOREIGN = "nothing that DeepSpeed knows"


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredKey:
    """A key at `path`, in a block that DeepSpeed reads.

    `meant` is where the setting should stand, None where that is not known. `change` is what the release that it is
    not of did to it.
    """

    path: Path
    value: Any
    block: Block
    kind: Kind
    meant: Path | None = None
    change: Change | None = None

    @property
    def holder(self) -> str:
        """The block as messages name it."""
        return self.block.name or "the root of the config"


def ignored_keys(context: LintContext) -> tuple[IgnoredKey, ...]:
    """All ignored keys of a config, but for those that are meant to be ignored and those that other rules report."""
    return context.once("ignored keys", lambda: tuple(_find(context)))


# `ds_accum.config.block.BLOCK`, without all that this module loads.
_OUR_BLOCK = "ds_accum"

# Keys that say in some way that they are not for DeepSpeed.
_NOTES = frozenset({"comment", "comments", "note", "notes", "description", "$schema", _OUR_BLOCK, "//", "#"})

# Names for a setting that no misspelling explains.
_OTHER_NAMES: Mapping[str, Path] = {
    "zero": ("zero_optimization",),
    "zero_config": ("zero_optimization",),
    "zero_optimizer": ("zero_optimization",),
    "zero_stage": ("zero_optimization", "stage"),
    "gas": (ACCUMULATION,),
    "accumulation_steps": (ACCUMULATION,),
    "accumulate_grad_batches": (ACCUMULATION,),
    "micro_batch_size": (MICRO_BATCH,),
    "micro_batch_size_per_gpu": (MICRO_BATCH,),
    "train_micro_batch_size_per_device": (MICRO_BATCH,),
    "train_batch_size_per_gpu": (MICRO_BATCH,),
    "global_batch_size": (GLOBAL_BATCH,),
    "gradient_accumulation_dtype": ("data_types", "grad_accum_dtype"),
    "grad_accumulation_dtype": ("data_types", "grad_accum_dtype"),
    "accumulation_dtype": ("data_types", "grad_accum_dtype"),
    "communication_dtype": ("communication_data_type",),
    "comm_data_type": ("communication_data_type",),
}

# Gone before the oldest release of the key table, with the key that took over.
_LONG_GONE: Mapping[str, Path] = {
    "fp32_allreduce": ("communication_data_type",),
    "allreduce_always_fp32": ("communication_data_type",),
}

_CLIPPING_NAMES = frozenset({"max_grad_norm", "max_gradient_norm", "clip_norm", "clip_value", "clipping", "max_norm"})
_CLIPPING = re.compile(r"grad.*clip|clip.*grad")

# Names so common that, outside of its block, one of them says nothing about DeepSpeed.
_COMMON = frozenset(
    {
        *("api_key", "block_size", "data_parallel", "experiment_key", "experiment_name", "job_name", "max_batch_size"),
        *("max_tokens", "metrics_path", "min_batch_size", "model_info", "model_type", "num_bits", "num_epochs"),
        *("num_workers", "output_file", "output_path", "pin_memory", "preset_model", "results_dir", "score_func"),
        *("top_k", "num_experts_attr", "expert_activation", "route_scale", "tp_size", "tp_group", "mp_size"),
    }
)
# One word, and yet telling.
_TELLING = frozenset({"stage", "hysteresis", "zenflow", "deepcompile"})

# A file with more unknown keys than this is looked at for spelling only in part.
_MOST_GUESSES = 50


def _find(context: LintContext) -> Iterator[IgnoredKey]:
    guesses = 0
    for reading in context.config.present():
        if not reading.is_mapping:
            continue
        if reading.block.unknown == "reject":
            if not context.config.schema.is_in_a_model(reading.block):
                yield from _dropped_in_a_model(context.config.schema, reading.block, reading.path, reading.raw)
            continue
        for key, value in reading.raw.items():
            if key in reading.block.keys or _is_a_note(key):
                continue
            guesses += 1
            ignored = _ignored(context, reading, key, value, may_guess=guesses <= _MOST_GUESSES)
            if ignored is not None:
                yield ignored


def _is_a_note(key: Any) -> bool:
    """Whether a key says that it is not for DeepSpeed; in YAML a key need not even be a string."""
    if not isinstance(key, str) or not key.strip():
        return True
    return key.startswith(("_", "x-", "x_", "//", "#")) or key.lower() in _NOTES


def _dropped_in_a_model(schema: Schema, block: Block, path: Path, raw: Mapping[str, Any]) -> Iterator[IgnoredKey]:
    """Unknown keys that a validated block does not refuse, because it drops whatever says "auto"."""
    for key, value in raw.items():
        known = block.keys.get(key)
        if known is not None:
            if known.block is not None and isinstance(value, dict):
                yield from _dropped_in_a_model(schema, schema.block(known.block), (*path, key), value)
        elif value == "auto" and not _is_a_note(key):
            if any(item.name_in_model == key for item in block.keys.values()):
                continue
            meant = closest_key(key, block.keys)
            kind = Kind.FOREIGN if meant is None else Kind.MISSPELT
            yield IgnoredKey(
                path=(*path, key), value=value, block=block, kind=kind, meant=None if meant is None else (*path, meant)
            )


def _ignored(
    context: LintContext, reading: BlockReading, key: str, value: Any, *, may_guess: bool
) -> IgnoredKey | None:
    block, path = reading.block, (*reading.path, key)

    def of(kind: Kind, meant: Path | None = None, change: Change | None = None) -> IgnoredKey:
        return IgnoredKey(path=path, value=value, block=block, kind=kind, meant=meant, change=change)

    change = last_change(block.name, key)
    if change is not None:
        if change.refused and change.version <= context.version:
            return None  # refused, by a rule of its own
        return of(Kind.OTHER_RELEASE, change=change)
    if not block.name and key in _LONG_GONE:
        return of(Kind.OTHER_RELEASE, _LONG_GONE[key])
    if _is_for_another_tool(context):
        return of(Kind.FOREIGN)
    if key.lower() in _CLIPPING_NAMES or _CLIPPING.search(key.lower()):
        return of(Kind.CLIPPING, ("gradient_clipping",))
    meant = _other_place(context, block, key)
    if meant is not None:
        return of(Kind.FOREIGN if _is_taken(context, meant) else Kind.MISPLACED, meant)
    meant = _OTHER_NAMES.get(key.lower()) if not block.name else None
    if meant is None and may_guess:
        name = closest_key(key, block.keys if block.name else [*block.keys, _OUR_BLOCK])
        meant = None if name is None else (*block.path, name)
    if meant is None or _is_taken(context, meant):
        return of(Kind.FOREIGN)
    return of(Kind.MISSPELT, meant)


def _is_for_another_tool(context: LintContext) -> bool:
    """GPT-NeoX has JSON files too, in which DeepSpeed's keys are a few among its own."""

    def names_a_model() -> bool:
        names = {str(key).replace("-", "_") for key in context.values}
        return bool(names & {"num_layers", "pipe_parallel_size", "lr_decay_style"})

    return context.once("gpt-neox", names_a_model)


def _is_taken(context: LintContext, path: Path) -> bool:
    """Whether the file sets, or the framework fills in, what stands at a path: then nothing is missing there."""
    if path in context.embedded.filled_in:
        return True
    return value_at(context.values, path, NOTHING) is not NOTHING


# --- where a key belongs ----------------------------------------------------------------------------------------------


def _other_place(context: LintContext, block: Block, key: str) -> Path | None:
    """Where a key belongs that is none of its block's: the root, `params` beside it, or the one block that has it."""
    if block.name in ("optimizer", "scheduler") and key in _parameters(context, block.name):
        return (block.name, "params", key)
    schema = context.config.schema
    if block.name and key in schema.block("").keys and key not in schema.blocks:
        return (key,)
    homes = _homes(schema.version if schema.version < newest_version() else newest_version()).get(key, ())
    return homes[0] if len(homes) == 1 else None


def _parameters(context: LintContext, name: str) -> frozenset[str]:
    """What the class that the block names takes among its `params`."""
    if name == "optimizer":
        choice = resolve_optimizer(context.config)
        return frozenset() if choice is None or choice.parameters is None else choice.parameters
    kind = context.block("scheduler").get("type")
    signature = scheduler_signature(kind) if isinstance(kind, str) else None
    return frozenset() if signature is None else signature.parameters


@lru_cache(maxsize=4)
def _homes(version: tuple[int, ...]) -> Mapping[str, tuple[Path, ...]]:
    """For each telling key below the root, the places where it belongs."""
    homes: dict[str, tuple[Path, ...]] = {}
    for block in schema_for(version).blocks.values():
        for key in block.keys.values() if block.name not in ("", "autotuning") else ():
            if key.name in _TELLING or ("_" in key.name and key.name not in _COMMON):
                homes[key.name] = (*homes.get(key.name, ()), (*block.path, key.name))
    return homes
