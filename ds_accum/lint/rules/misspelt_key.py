"""A key that DeepSpeed ignores is one letter, or one ending, away from a key that it reads.

The root of the config and the blocks that DeepSpeed reads as plain dictionaries take the keys that they know and
leave the rest, without a word in the log. `gradient_accumulation_step: 8` leaves the accumulation at 1, and the run
is another one than the file says: another batch, another precision, another stage. The validated blocks refuse such a
key, unless its value is "auto", which they drop before they look at the names.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, MoveKey, RenameKey
from ds_accum.lint.ignored_keys import IgnoredKey, Kind, ignored_keys
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import dotted, shown

BAD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_step": 2,
  "gradient_clipping": 0.0,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}}
}
""",
        reports=(
            Report(
                at="gradient_accumulation_step",
                message='the root of the config has no key "gradient_accumulation_step", and DeepSpeed ignores it',
            ),
        ),
        fixed="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 2,
  "gradient_clipping": 0.0,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}}
}
""",
    ),
    Example(
        config='{"train_batch_size": 8, "data_types": {"grad_acum_dtype": "fp32"}}',
        reports=(
            Report(
                at="data_types.grad_acum_dtype",
                message='data_types has no key "grad_acum_dtype", and DeepSpeed ignores it',
            ),
        ),
        fixed='{"train_batch_size": 8, "data_types": {"grad_accum_dtype": "fp32"}}',
    ),
    Example(
        config='{"train_batch_size": 8, "zero_optimization": {"stage": 2, "overlap_com": "auto"}}',
        reports=(
            Report(
                at="zero_optimization.overlap_com",
                message='zero_optimization has no key "overlap_com", and DeepSpeed drops it, because it says "auto"',
            ),
        ),
        fixed='{"train_batch_size": 8, "zero_optimization": {"stage": 2, "overlap_comm": "auto"}}',
    ),
    # The block that this linter reads itself.
    Example(
        config='{"train_batch_size": 8, "ds_acum": {"lint": {"world_size": 8}}}',
        reports=(
            Report(at="ds_acum", message='the root of the config has no key "ds_acum", and DeepSpeed ignores it'),
        ),
        fixed='{"train_batch_size": 8, "ds_accum": {"lint": {"world_size": 8}}}',
    ),
)

GOOD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 2,
  "gradient_clipping": 0.0,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}}
}
"""
    ),
    # Notes, and what a script keeps in the file for itself.
    Example(config='{"train_batch_size": 8, "_fp16": {"enabled": true}, "x-owner": "me", "comment": "for eight GPUs"}'),
    Example(config='{"train_batch_size": 8, "model_parallel_size": 1, "batch_size": 8}', launch=Launch(world_size=1)),
)


def check(context: LintContext) -> Iterator[Finding]:
    for ignored in ignored_keys(context):
        if ignored.kind is not Kind.MISSPELT or ignored.meant is None:
            continue
        meant, same_block = ignored.meant, ignored.meant[:-1] == ignored.path[:-1]
        name = shown(str(meant[-1])) if same_block else dotted(meant)
        yield Finding(
            at=ignored.path,
            on_key=True,
            message=f"{ignored.holder} has no key {shown(str(ignored.path[-1]))}, and DeepSpeed"
            f" {_what_it_does(ignored)}",
            help=f"did you mean {name}?",
            fix=Fix(
                title=f"rename it to {name}" if same_block else f"move it to {name}",
                changes=(RenameKey(ignored.path, str(meant[-1])) if same_block else MoveKey(ignored.path, meant),),
            ),
        )


def _what_it_does(ignored: IgnoredKey) -> str:
    return 'drops it, because it says "auto"' if ignored.block.unknown == "reject" else "ignores it"


RULE = Rule(
    code="DSA704",
    name="misspelt-key",
    summary="a key that DeepSpeed ignores looks like one that it reads",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
    references=("https://github.com/deepspeedai/DeepSpeed/issues/653",),
)
