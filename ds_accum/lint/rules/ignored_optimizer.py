"""The script brings its own optimizer, and the config's is ignored.

`deepspeed.initialize(optimizer=...)` comes first: the config's optimizer block is not built and not compared with it,
so a learning rate or a weight decay changed there has no effect. Said only where the launch says so (`--client-
optimizer yes`).
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, RemoveKey
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "SGD", "params": {"lr": 1e-4}}
}
""",
        launch=Launch(world_size=1, client_optimizer=True),
        reports=(
            Report(
                at="optimizer",
                message='the optimizer "SGD" is not built and its params are not read: the script passes its own'
                " optimizer",
            ),
        ),
        fixed="""{
  "train_batch_size": 8
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0
}
""",
        launch=Launch(world_size=1, client_optimizer=True),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "SGD", "params": {"lr": 1e-4}}
}
""",
        launch=Launch(world_size=1),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    kind = context.block("optimizer").get("type")
    if kind is None or context.launch.client_optimizer is not True:
        return
    yield Finding(
        at=("optimizer",),
        on_key=True,
        message=f"the optimizer {shown(kind)} is not built and its params are not read: the script passes its own"
        " optimizer",
        help="remove the block, or pass no optimizer to deepspeed.initialize",
        fix=Fix("remove the optimizer block", (RemoveKey(("optimizer",)),)),
    )


RULE = Rule(
    code="DSA533",
    name="ignored-optimizer",
    summary="the config names an optimizer, but the script passes its own",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
)
