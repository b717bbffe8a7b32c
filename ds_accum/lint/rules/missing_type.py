"""The optimizer or the scheduler block names no class, so DeepSpeed ignores all of it.

The key is called `type`. With `name` in its place, or without either, nothing is said. Without an optimizer the job
fails much later, at the first backward, with "must provide optimizer during init"; without a scheduler it trains at a
constant learning rate to the end.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, RenameKey
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"name": "WarmupLR", "params": {"warmup_num_steps": 100}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False, client_scheduler=False),
        reports=(
            Report(
                at="scheduler.name",
                message='the scheduler block has no type, only a name ("WarmupLR"), so DeepSpeed ignores it and the'
                " learning rate stays constant",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 100}}
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"name": "AdamW", "params": {"lr": 1e-4}}
}
""",
        launch=Launch(world_size=1),
        reports=(
            Report(
                at="optimizer.name",
                message='the optimizer block has no type, only a name ("AdamW"), so DeepSpeed ignores it',
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 100}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False, client_scheduler=False),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    for block in ("optimizer", "scheduler"):
        reading = context.block(block)
        if not reading.present or not reading.is_mapping or reading.get("type") is not None or not reading.raw:
            continue
        if block == "optimizer" and context.config.zero_stage in (1, 2) and context.launch.client_optimizer is False:
            continue  # does not start, which has a rule of its own
        name = reading.raw.get("name")
        named = f", only a name ({shown(name)})" if isinstance(name, str) else ""
        constant = block == "scheduler" and context.launch.client_scheduler is False
        yield Finding(
            at=(block, "name") if named else (block,),
            on_key=True,
            message=f"the {block} block has no type{named}, so DeepSpeed ignores it"
            + (" and the learning rate stays constant" if constant else ""),
            help=f'call the key "type"{"" if named else ", and give it the name of a class"}',
            fix=Fix('call the key "type"', (RenameKey((block, "name"), "type"),))
            if named and "type" not in reading.raw
            else None,
        )


RULE = Rule(
    code="DSA532",
    name="missing-type",
    summary="the optimizer or the scheduler block names no class, and is ignored",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
)
