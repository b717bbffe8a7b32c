"""A key stands in a block where DeepSpeed does not look for it.

Most settings belong into a block: ZeRO's into `zero_optimization`, an optimizer's into `optimizer.params`, the dtype
of accumulation into `data_types`. At the root of the config, or beside `params`, DeepSpeed ignores them without a
word, and the default holds: `"optimizer": {"type": "AdamW", "weight_decay": 0.1}` trains with the class's own weight
decay of 0.01.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, MoveKey
from ds_accum.lint.ignored_keys import Kind, ignored_keys
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import dotted, shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "stage": 2,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
        reports=(
            Report(
                at="stage",
                message='DeepSpeed ignores "stage" at the root of the config: it is a key of zero_optimization',
            ),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}, "weight_decay": 0.1}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="optimizer.weight_decay",
                message='DeepSpeed ignores "weight_decay" in optimizer: it is a key of optimizer.params',
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.1}}
}
""",
    ),
    Example(
        config='{"train_batch_size": 8, "grad_accum_dtype": "fp32"}',
        reports=(
            Report(
                at="grad_accum_dtype",
                message='DeepSpeed ignores "grad_accum_dtype" at the root of the config: it is a key of data_types',
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "zero_optimization": {"stage": 2},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.1}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    for ignored in ignored_keys(context):
        if ignored.kind is not Kind.MISPLACED or ignored.meant is None:
            continue
        home = dotted(ignored.meant[:-1])
        where = f"in {ignored.block.name}" if ignored.block.name else "at the root of the config"
        target = home or "the root of the config"
        yield Finding(
            at=ignored.path,
            on_key=True,
            message=f"DeepSpeed ignores {shown(str(ignored.path[-1]))} {where}: it is a key of {target}",
            help=f"move it {'into ' + home if home else 'to ' + target}",
            fix=Fix(
                title=f"move it {'into ' + home if home else 'to ' + target}",
                changes=(MoveKey(ignored.path, ignored.meant),),
            ),
        )


RULE = Rule(
    code="DSA705",
    name="misplaced-key",
    summary="a key stands in a block where DeepSpeed does not look for it",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
)
