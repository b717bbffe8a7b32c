"""A deprecated setting stands beside the one that replaced it.

DeepSpeed still understands `cpu_offload` and its like alone, and turns them into their replacement; with both it can't
tell which one is meant and fails, even where the old one says false.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.mends import removed
from ds_accum.lint.rule import Example, Report, Rule

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "zero_optimization": {
    "stage": 2,
    "cpu_offload": false,
    "offload_optimizer": {"device": "cpu"}
  }
}
""",
        reports=(
            Report(
                at="zero_optimization.cpu_offload",
                message='"cpu_offload" (line 5) was replaced by "offload_optimizer" (line 6), and DeepSpeed refuses'
                " both together",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {"device": "cpu"}
  }
}
""",
    ),
)

GOOD = (
    Example(
        config='{"train_batch_size": 8, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}'
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    zero = context.block("zero_optimization")
    if not zero.present or not zero.is_mapping or zero.errors:
        return
    for key in zero.block.keys.values():
        if key.replaced_by is None or not zero.written(key.name):
            continue
        # The replacement may be written under its own name or under its name in DeepSpeed's model.
        for other in zero.block.keys.values():
            if key.replaced_by not in (other.name, other.name_in_model):
                continue
            for name in filter(None, (other.name, other.name_in_model)):
                if zero.written(name):
                    yield _finding(context, key.name, name)


def _finding(context: LintContext, old: str, new: str) -> Finding:
    block = "zero_optimization"
    return Finding(
        at=(block, old),
        on_key=True,
        message=f'"{old}" ({context.line(block, old)}) was replaced by "{new}" ({context.line(block, new)}), and'
        " DeepSpeed refuses both together",
        help=f'remove "{old}"',
        fix=removed((block, old)),
    )


RULE = Rule(
    code="DSA703",
    name="replaced-key-beside-its-replacement",
    summary="a deprecated setting stands beside the one that replaced it",
    rationale=__doc__,
    when=When.LOAD,
    check=check,
    bad=BAD,
    good=GOOD,
)
