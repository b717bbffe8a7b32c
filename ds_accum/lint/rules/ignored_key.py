"""The config holds keys that mean nothing to DeepSpeed.

DeepSpeed ignores what it does not know at the root of the config and in the blocks that are plain dictionaries. Some
scripts use that, and keep their own arguments in the same file; nothing is wrong then. But nobody says so either
where a setting was made up, or copied from another tool, and never had an effect. All such keys of a file are named
in one line. A key that begins with `_` or `x-`, or that is called `comment`, is taken for a note.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.ignored_keys import Kind, ignored_keys
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import dotted, shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "disable_fused_adam": true,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
        reports=(
            Report(
                at="disable_fused_adam",
                message="DeepSpeed ignores a key that means nothing to it: disable_fused_adam",
            ),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "lora_r": 8,
  "model_dir": "model",
  "flops_profiler": {"enabled": false, "warm_up": 10}
}
""",
        reports=(
            Report(
                at="lora_r",
                message="DeepSpeed ignores 3 keys that mean nothing to it: lora_r, model_dir, flops_profiler.warm_up",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "_disable_fused_adam": true,
  "comment": "for eight GPUs",
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
"""
    ),
)

_MOST_NAMES = 6


def check(context: LintContext) -> Iterator[Finding]:
    foreign = [ignored.path for ignored in ignored_keys(context) if ignored.kind is Kind.FOREIGN]
    if not foreign:
        return
    names = [dotted(path) if len(dotted(path)) <= 60 else shown(dotted(path)) for path in foreign[:_MOST_NAMES]]
    rest = len(foreign) - len(names)
    keys = "a key that means nothing" if len(foreign) == 1 else f"{len(foreign):,} keys that mean nothing"
    yield Finding(
        at=foreign[0],
        on_key=True,
        message=f"DeepSpeed ignores {keys} to it: {', '.join(names)}{f' and {rest:,} more' if rest else ''}",
        help='begin its name with "_" if it is a note or an argument of the script, else remove it'
        if len(foreign) == 1
        else 'begin their names with "_" if they are notes or arguments of the script, else remove them',
    )


RULE = Rule(
    code="DSA707",
    name="ignored-key",
    summary="the config holds keys that mean nothing to DeepSpeed",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.INFO,
    check=check,
    bad=BAD,
    good=GOOD,
)
