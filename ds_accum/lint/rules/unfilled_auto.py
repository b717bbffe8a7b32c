"""A value is "auto" where nobody fills it in, and DeepSpeed takes its default.

"auto" is a word of the Hugging Face integration, which replaces it in a list of places before DeepSpeed sees the
config. Everywhere else, and in every place where a plain script reads the file, the validated blocks drop a key whose
value is "auto", and the default holds: `stage` "auto" is stage 0, `fp16.enabled` and `bf16.enabled` "auto" are fp32,
and a whole `offload_optimizer` "auto" is no offload.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ds_accum.config.document import Path
from ds_accum.config.launch import Launch
from ds_accum.config.schema import Block, Key
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import dotted, shown

_RAW = Launch(world_size=1, framework="raw")

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "zero_optimization": {"stage": "auto"},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
        launch=_RAW,
        reports=(
            Report(
                at="zero_optimization.stage",
                message='zero_optimization.stage is "auto", for which DeepSpeed takes its default, 0',
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "zero_optimization": {"stage": 0},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
    ),
    Example(
        config='{"train_batch_size": 8, "fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}}',
        launch=_RAW,
        reports=(
            Report(at="fp16.enabled", message='fp16.enabled is "auto", for which DeepSpeed takes its default, false'),
            Report(at="bf16.enabled", message='bf16.enabled is "auto", for which DeepSpeed takes its default, false'),
        ),
        fixed='{"train_batch_size": 8, "fp16": {"enabled": false}, "bf16": {"enabled": false}}',
    ),
    Example(
        config='{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "offload_param": "auto"}}',
        launch=Launch(world_size=1, framework="huggingface"),
        reports=(
            Report(
                at="zero_optimization.offload_param",
                message='zero_optimization.offload_param is "auto", which DeepSpeed takes as absent',
            ),
        ),
        deepspeed=None,
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "zero_optimization": {"stage": 2},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
        launch=_RAW,
    ),
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_clipping": "auto",
  "fp16": {"enabled": "auto"},
  "bf16": {"enabled": "auto"},
  "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}
}
""",
        launch=Launch(world_size=1, framework="huggingface"),
        deepspeed=None,
    ),
)

# Switches and choices, of which the default is another thing than what the file seems to leave open.
_DECIDING = frozenset({"enabled", "stage", "device"})


def check(context: LintContext) -> Iterator[Finding]:
    schema = context.config.schema
    for reading in context.config.present():
        if reading.block.kind == "model" and reading.is_mapping and not schema.is_in_a_model(reading.block):
            yield from _dropped(context, reading.block, reading.path, reading.raw)


def _dropped(context: LintContext, block: Block, path: Path, raw: Mapping[str, Any]) -> Iterator[Finding]:
    for name, value in raw.items():
        key = block.keys.get(name)
        if key is None:
            continue
        if value == "auto" and key.default != "auto":
            yield _finding(context, (*path, name), key)
        elif key.block is not None and isinstance(value, dict):
            yield from _dropped(context, context.config.schema.block(key.block), (*path, name), value)


def _finding(context: LintContext, path: Path, key: Key) -> Finding:
    is_block, known = key.block is not None, key.default is not None
    takes = "which DeepSpeed takes as absent" if is_block or not known else "for which DeepSpeed takes its default"
    from_huggingface = context.launch.framework in ("huggingface", "accelerate")
    return Finding(
        at=path,
        severity=None if is_block or key.name in _DECIDING else Severity.INFO,
        message=f'{dotted(path)} is "auto", {takes}{f", {shown(key.default)}" if known and not is_block else ""}',
        help="write the value, or leave it out: Hugging Face does not fill it in"
        if from_huggingface
        else "write the value, or leave it out",
        fix=Fix(title=f"write the default, {shown(key.default)}", changes=(SetValue(path, key.default),), is_safe=True)
        if known and not is_block
        else None,
    )


RULE = Rule(
    code="DSA708",
    name="unfilled-auto",
    summary='a value is "auto" where nobody fills it in',
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
)
