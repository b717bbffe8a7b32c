"""A setting that DeepSpeed reads without a model has a value that its own code then trips over.

Outside of the validated blocks DeepSpeed takes a value as it comes and uses it: it lowers a word, adds a number, looks
a name up. A wrong type fails there with "'int' object has no attribute 'upper'" or the like, without the name of the
key; a wrong word fails with a list of the right ones. Everything that fails while the config is loaded, and that no
other rule names, is found here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ds_accum.config.document import Path
from ds_accum.config.paths import mapping_at, value_at
from ds_accum.config.support import dtype_of
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.fix import Fix, RemoveKey, SetValue
from ds_accum.lint.mends import removed, replaced, without_quotes
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import dotted, one_of, shown, what

BAD = (
    Example(
        config='{"train_batch_size": 8, "checkpoint": {"tag_validation": "error"}}',
        reports=(
            Report(
                at="checkpoint.tag_validation",
                message='checkpoint.tag_validation must be "WARN", "IGNORE" or "FAIL", but is the string "error"',
            ),
        ),
    ),
    Example(
        config='{"train_batch_size": 8, "wall_clock_breakdown": null}',
        reports=(Report(at="wall_clock_breakdown", message="wall_clock_breakdown must be true or false, but is null"),),
        fixed='{"train_batch_size": 8}',
    ),
    Example(
        config='{"train_batch_size": 8, "optimizer": {"type": ["AdamW"]}}',
        reports=(Report(at="optimizer.type", message='optimizer.type must be a string, but is the list ["AdamW"]'),),
    ),
    Example(
        config='{"train_batch_size": 8, "torch_autocast": {"enabled": true, "dtype": "fp8"}}',
        reports=(
            Report(
                at="torch_autocast.dtype",
                message='torch_autocast.dtype must be a torch dtype such as "fp16", "bf16" or "fp32", but is the string'
                ' "fp8"',
            ),
        ),
    ),
    Example(
        config='{"train_batch_size": 8, "log_level": "warn"}',
        reports=(
            Report(
                at="log_level",
                message='log_level must be "debug", "info", "warning", "error" or "critical", but is the string "warn"',
            ),
        ),
        fixed='{"train_batch_size": 8, "log_level": "warning"}',
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "checkpoint": {"tag_validation": "fail", "writer": null, "parallel_write": {"pipeline_stage": true}},
  "wall_clock_breakdown": false,
  "log_level": "WARNING",
  "torch_autocast": {"enabled": true, "dtype": "bfloat16"}
}
"""
    ),
)

Complaint = tuple[Path, str, Any]  # where, what it must be, what it is


def check(context: LintContext) -> Iterator[Finding]:
    for reader in _READERS:
        for path, wanted, value in reader(context):
            message = f"{dotted(path)} must be {wanted}, but is {what(value)}"
            yield Finding(at=path, message=message, help=_help(value), fix=_fix(path, wanted, value))
    yield from _log_level(context)


def _log_level(context: LintContext) -> Iterator[Finding]:
    """Looked up by the engine (`get_log_level_from_string`, utils/logging.py), not while the config is loaded."""
    level = context.values.get("log_level")
    if level is None or "log_level" not in context.config.top.block.keys:
        return
    if isinstance(level, str) and level.lower() in _LOG_LEVELS:
        return
    meant = _OTHER_LEVELS.get(level.lower()) if isinstance(level, str) else None
    yield Finding(
        at=("log_level",),
        when=When.START,
        message=f"log_level must be {one_of(_LOG_LEVELS)}, but is {what(level)}",
        help=f"write {shown(meant)}" if meant else "use one of these, or leave it out",
        fix=Fix(
            title=f"set log_level to {shown(meant)}" if meant else "remove log_level",
            changes=(SetValue(("log_level",), meant) if meant else RemoveKey(("log_level",)),),
            is_safe=True,
        ),
    )


_LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
# What other tools, and Python's own module, call the same levels.
_OTHER_LEVELS: Mapping[str, str] = {"warn": "warning", "fatal": "critical", "verbose": "debug", "trace": "debug"}


def _help(value: Any) -> str:
    return "leave it out" if value is None else "change the value, or leave it out"


def _fix(path: Path, wanted: str, value: Any) -> Fix | None:
    if value is None:
        return removed(path)
    if wanted == "true or false" and isinstance(value, str) and value.lower() in ("true", "false"):
        return replaced(path, value.lower() == "true")
    return without_quotes(path, value, integer=wanted == "an integer") if wanted in _NUMBERS else None


_NUMBERS = ("a number", "an integer")


def _optimizer(context: LintContext) -> Iterator[Complaint]:
    optimizer = mapping_at(context.values, ("optimizer",))
    kind = optimizer.get("type")
    if kind is None:
        return  # without a type DeepSpeed does not look at the rest of the block
    if not isinstance(kind, str):
        yield ("optimizer", "type"), "a string", kind
    params = optimizer.get("params")
    if params is None:
        return
    if not isinstance(params, Mapping):
        yield ("optimizer", "params"), "an object of settings", params
    elif "max_grad_norm" in params and not isinstance(params["max_grad_norm"], int | float):
        # Compared with 0 for a warning, before it is refused altogether.
        yield ("optimizer", "params", "max_grad_norm"), "a number", params["max_grad_norm"]


def _wall_clock_breakdown(context: LintContext) -> Iterator[Complaint]:
    # DeepSpeed computes `wall_clock_breakdown | flops_profiler.enabled`.
    breakdown = context.values.get("wall_clock_breakdown", False)
    profiler = context.block("flops_profiler")
    enabled = profiler.get("enabled") if profiler.is_mapping else False
    try:
        breakdown | enabled
    except TypeError:
        if isinstance(breakdown, int):
            yield ("flops_profiler", "enabled"), "true or false", enabled
        else:
            yield ("wall_clock_breakdown",), "true or false", breakdown


def _vocabulary_size(context: LintContext) -> Iterator[Complaint]:
    size = context.values.get("vocabulary_size")
    try:
        bool(size and size % 8 != 0)
    except (TypeError, ValueError):
        yield ("vocabulary_size",), "an integer", size


def _torch_autocast(context: LintContext) -> Iterator[Complaint]:
    autocast = mapping_at(context.values, ("torch_autocast",))
    if "dtype" in autocast:
        word = autocast["dtype"]
        if dtype_of(word) is None:
            yield ("torch_autocast", "dtype"), 'a torch dtype such as "fp16", "bf16" or "fp32"', word
    if "lower_precision_safe_modules" in autocast:
        names = autocast["lower_precision_safe_modules"]
        if not isinstance(names, str | Mapping) and not (
            isinstance(names, list) and all(isinstance(name, str) for name in names)
        ):
            yield ("torch_autocast", "lower_precision_safe_modules"), "a list of module names", names


def _data_types(context: LintContext) -> Iterator[Complaint]:
    data_types = context.block("data_types")
    if "keep_in_fp32_modules" not in data_types.block.keys or not data_types.is_mapping:
        return
    names = data_types.get("keep_in_fp32_modules")
    if names != "auto" and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        yield ("data_types", "keep_in_fp32_modules"), '"auto" or a list of name patterns', names


def _checkpoint(context: LintContext) -> Iterator[Complaint]:
    checkpoint = mapping_at(context.values, ("checkpoint",))
    yield from _word(checkpoint, ("checkpoint", "tag_validation"), ("WARN", "IGNORE", "FAIL"), null=False)
    stage = value_at(checkpoint, ("parallel_write", "pipeline_stage"), False)
    if stage not in (True, False):
        yield ("checkpoint", "parallel_write", "pipeline_stage"), "true or false", stage
    writer = mapping_at(checkpoint, ("writer",))
    yield from _word(writer, ("checkpoint", "writer", "type"), ("MOCK", "PYTHON", "FAST"), null=True)
    yield from _word(writer, ("checkpoint", "writer", "data_parallel"), ("REPLICA", "SOCKET", "MACHINE"), null=True)


def _word(holder: Mapping[str, Any], path: Path, words: tuple[str, ...], *, null: bool) -> Iterator[Complaint]:
    """A word that DeepSpeed puts in upper case before it looks it up."""
    value = holder.get(str(path[-1]), words[0])
    if not (isinstance(value, str) and value.upper() in words) and not (value is None and null):
        yield path, one_of(words), value


def _autotuning(context: LintContext) -> Iterator[Complaint]:
    autotuning = mapping_at(context.values, ("autotuning",))
    for name in ("results_dir", "exps_dir"):
        if not autotuning.get(name, "default"):
            yield ("autotuning", name), "the path of a folder", autotuning[name]
    model_info = autotuning.get("model_info")
    if model_info is not None and not isinstance(model_info, Mapping):
        yield ("autotuning", "model_info"), "an object of settings", model_info


def _data_efficiency(context: LintContext) -> Iterator[Complaint]:
    sampling = mapping_at(context.values, ("data_efficiency", "data_sampling"))
    base: Path = ("data_efficiency", "data_sampling")
    curriculum = mapping_at(sampling, ("curriculum_learning",))
    if curriculum.get("enabled") and "curriculum_metrics" not in curriculum:
        yield (*base, "curriculum_learning"), "given its curriculum_metrics while it is enabled", curriculum
    batching = mapping_at(sampling, ("dynamic_batching",))
    integers = ["min_batch_size", "max_batch_size"]
    if batching.get("enabled"):
        integers.append("max_tokens")
        if "max_tokens" not in batching:
            yield (*base, "dynamic_batching"), "given its max_tokens while it is enabled", batching
    for name in integers:
        if name in batching and not _is_convertible(batching[name]):
            yield (*base, "dynamic_batching", name), "an integer", batching[name]


def _is_convertible(value: Any) -> bool:
    try:
        int(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


_READERS: tuple[Callable[[LintContext], Iterator[Complaint]], ...] = (
    _optimizer,
    _wall_clock_breakdown,
    _vocabulary_size,
    _torch_autocast,
    _data_types,
    _checkpoint,
    _autotuning,
    _data_efficiency,
)


RULE = Rule(
    code="DSA014",
    name="unusable-value",
    summary="a setting that is read without a model has a value that DeepSpeed can't use",
    rationale=__doc__,
    when=When.LOAD,
    check=check,
    bad=BAD,
    good=GOOD,
)
