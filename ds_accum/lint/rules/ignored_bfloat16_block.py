"""The config has both spellings of the bf16 block, and DeepSpeed reads one.

`bfloat16` is the old name. It counts only where there is no `bf16`, or null; beside a `bf16` block it is skipped
without a word, even where that block switches nothing on, and the model then trains in fp32.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, RemoveKey
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "bf16": {"enabled": false},
  "bfloat16": {"enabled": true}
}
""",
        reports=(
            Report(
                at="bfloat16", message="DeepSpeed ignores bfloat16 beside bf16 (line 4): enabled is false, not true"
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "bf16": {"enabled": false}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "bfloat16": {"enabled": true}
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    if context.values.get("bf16") is None or "bfloat16" not in context.values:
        return
    counts = ("bf16", "enabled") in context.embedded.filled_in or context.config.enabled("bf16")
    old = context.values["bfloat16"]
    asked = old.get("enabled", False) if isinstance(old, dict) else False
    differs = asked is not counts
    yield Finding(
        at=("bfloat16",),
        on_key=True,
        severity=None if differs else Severity.INFO,
        message=f"DeepSpeed ignores bfloat16 beside bf16 ({context.line('bf16')})"
        + (f": enabled is {shown(counts)}, not {shown(asked)}" if differs else ""),
        help="keep one of the two, bf16",
        fix=Fix(title="remove bfloat16", changes=(RemoveKey(("bfloat16",)),), is_safe=True),
    )


RULE = Rule(
    code="DSA317",
    name="ignored-bfloat16-block",
    summary="the config has both spellings of the bf16 block, and DeepSpeed reads one",
    rationale=__doc__,
    when=When.NEVER,
    check=check,
    severity=Severity.WARNING,
    bad=BAD,
    good=GOOD,
)
