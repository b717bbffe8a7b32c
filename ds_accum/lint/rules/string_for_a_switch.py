"""A switch that DeepSpeed only tests for truth is a string, and every string is true.

At the root of the config and in the blocks that are plain dictionaries DeepSpeed does not look at the type of a
switch. `"prescale_gradients": "false"` switches it on, and so do "no", "0", "auto" and `False`, which Hjson reads as
text because its own word is `false`. The validated blocks (`zero_optimization`, `fp16`, `bf16`) understand such
strings.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.schema import Key
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import dotted, shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "dataloader_drop_last": "false",
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
        reports=(
            Report(
                at="dataloader_drop_last",
                message='dataloader_drop_last is the string "false", which DeepSpeed takes for true, as any string',
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "dataloader_drop_last": false,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
    ),
    Example(
        config='{\n  "train_batch_size": 8,\n  "prescale_gradients": False\n}\n',
        reports=(
            Report(
                at="prescale_gradients",
                message='prescale_gradients is the string "False", which DeepSpeed takes for true, as any string',
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "prescale_gradients": false
}
""",
    ),
    Example(
        config='{"train_batch_size": 8, "torch_autocast": {"enabled": "auto", "dtype": "bfloat16"}}',
        reports=(
            Report(
                at="torch_autocast.enabled",
                message='torch_autocast.enabled is the string "auto", which DeepSpeed takes for true, as any string',
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "dataloader_drop_last": false,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
"""
    ),
    Example(config='{"train_batch_size": 8, "prescale_gradients": "true", "bf16": {"enabled": "false"}}'),
)

_MEANT_AS_FALSE = frozenset({"false", "no", "off", "0", "none", "null", "n", "f", "disabled"})

# DeepSpeed does more with these than to ask whether they are true, and rules of their own say what it refuses.
_NOT_ONLY_TESTED = frozenset(
    {"wall_clock_breakdown", "flops_profiler.enabled", "checkpoint.parallel_write.pipeline_stage"}
)
_NOT_ONLY_TESTED_BLOCKS = frozenset({"aio", "pipeline", "checkpoint.writer"})


def check(context: LintContext) -> Iterator[Finding]:
    for reading in context.config.present():
        block = reading.block
        if block.kind != "mapping" or not reading.is_mapping or block.name in _NOT_ONLY_TESTED_BLOCKS:
            continue
        for name, value in reading.raw.items():
            key = block.keys.get(name)
            if type(value) is not str or key is None or not _is_a_switch(key):
                continue
            path = (*reading.path, name)
            meant = value.strip().rstrip(",").strip().lower()
            if dotted(path) in _NOT_ONLY_TESTED or not (
                meant in _MEANT_AS_FALSE or (meant == "auto" and not key.default)
            ):
                continue
            yield Finding(
                at=path,
                message=f"{dotted(path)} is the string {shown(value)}, which DeepSpeed takes for true, as any string",
                help="write true or false, without quotes and in lower case",
                fix=Fix(title="write false", changes=(SetValue(path, False),)) if meant != "auto" else None,
            )


def _is_a_switch(key: Key) -> bool:
    return key.type == "bool" or (key.name == "enabled" and key.type == "any")


RULE = Rule(
    code="DSA709",
    name="string-for-a-switch",
    summary="a switch is a string that means false and counts as true",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
)
