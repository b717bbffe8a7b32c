"""The config names a scheduler that is never built.

A scheduler that the script hands to `deepspeed.initialize` comes first since DeepSpeed 0.14.5, and the config's is
dropped without a word. Without any optimizer none is built either. Said only where the launch says so (`--client-
scheduler yes`, `--client-optimizer no`).
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
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
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 100}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False, client_scheduler=True),
        reports=(
            Report(
                at="scheduler",
                message='the scheduler "WarmupLR" is not built: the script passes its own scheduler',
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
    ),
    Example(
        config='{"train_batch_size": 8, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 100}}}',
        launch=Launch(world_size=1, client_optimizer=False, client_scheduler=False),
        deepspeed=None,  # starts, and can't be trained
        reports=(
            Report(
                at="scheduler",
                message='the scheduler "WarmupLR" is not built: there is no optimizer, neither in the config nor from'
                " the script",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False, client_scheduler=True),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 100}}
}
""",
        launch=Launch(world_size=1, client_optimizer=True, client_scheduler=False),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    kind = context.block("scheduler").get("type")
    if kind is None:
        return
    message = f"the scheduler {shown(kind)} is not built"
    if support.has_optimizer(context.config, context.launch) is False:
        yield Finding(
            at=("scheduler",),
            on_key=True,
            message=f"{message}: there is no optimizer, neither in the config nor from the script",
            help="name an optimizer in the config, or pass one to deepspeed.initialize",
            severity=Severity.INFO,
        )
    elif context.launch.client_scheduler is True and context.version >= (0, 14, 5):
        yield Finding(
            at=("scheduler",),
            on_key=True,
            message=f"{message}: the script passes its own scheduler",
            help="remove the block, or pass no scheduler to deepspeed.initialize",
            fix=Fix("remove the scheduler block", (RemoveKey(("scheduler",)),)),
        )


RULE = Rule(
    code="DSA534",
    name="ignored-scheduler",
    summary="the config names a scheduler that is never built",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
)
