"""The config names a learning rate scheduler that DeepSpeed can't build.

DeepSpeed has five of its own, `WarmupLR` and the like, and looks for any other name in `torch.optim.lr_scheduler`; case
counts in both. It asks for the name as an attribute of the module, so that `math` and the module's constants pass and
fail when they are called, as do nearly all of its functions and classes. Some of torch's schedulers want a function, or
other schedulers, which no file can hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ds_accum.config.launch import Launch
from ds_accum.config.optimizers import NOT_FROM_A_FILE, deepspeed_schedulers, other_names, torch_schedulers
from ds_accum.config.spelling import closest_word
from ds_accum.lint.built_from_config import scheduler_from_config
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix
from ds_accum.lint.mends import replaced
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown, what

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupCosine", "params": {"total_num_steps": 1000}}
}
""",
        launch=Launch(world_size=1, client_scheduler=False),
        reports=(
            Report(
                at="scheduler.type",
                message='DeepSpeed has no scheduler "WarmupCosine", nor has torch.optim.lr_scheduler',
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 1000}}
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "LambdaLR", "params": {"lr_lambda": "lambda step: 1"}}
}
""",
        reports=(
            Report(
                at="scheduler.type",
                message="LambdaLR takes a function, so no config can set it up, unless the script passes its own"
                " scheduler",
            ),
        ),
    ),
    Example(
        config='{"train_batch_size": 8, "scheduler": {"type": "math", "params": {}}}',
        launch=Launch(world_size=1, client_optimizer=True, client_scheduler=False),
        reports=(
            Report(
                at="scheduler.type",
                message='"math" is no scheduler, though the module where DeepSpeed looks has something of that name',
            ),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "Optimizer", "params": {}}
}
""",
        launch=Launch(world_size=1, client_scheduler=False),
        reports=(
            Report(
                at="scheduler.type",
                message='"Optimizer" is no scheduler, though the module where DeepSpeed looks has something of that'
                " name",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 1000}}
}
""",
        launch=Launch(world_size=1, client_scheduler=False),
    ),
)

# What the same schedules are called elsewhere.
_OTHER_NAMES: Mapping[str, str] = {
    "linear": "WarmupDecayLR",
    "cosine": "WarmupCosineLR",
    "constant_with_warmup": "WarmupLR",
    "warmup": "WarmupLR",
}


def check(context: LintContext) -> Iterator[Finding]:
    name, built = context.block("scheduler").get("type"), scheduler_from_config(context)
    severity = None
    if built is None:
        return
    if not isinstance(name, str):
        message = f"scheduler.type must be the name of a scheduler, but is {what(name)}"
        help_ = f"use one of {', '.join(deepspeed_schedulers())}"
    elif name in NOT_FROM_A_FILE:
        message = f"{name} {NOT_FROM_A_FILE[name]}, so no config can set it up"
        help_ = "pass the scheduler to deepspeed.initialize in the script, or use one of DeepSpeed's own"
    elif name in deepspeed_schedulers() or name in torch_schedulers():
        return
    else:
        other = "callable" if name.startswith("__") else other_names("schedulers").get(name)
        message = f"DeepSpeed has no scheduler {shown(name)}, nor has torch.optim.lr_scheduler"
        if other is not None:
            # What can be called may even return something, with the right parameters; torch's base class never does.
            severity = Severity.WARNING if other == "callable" and name != "Optimizer" else None
            message = (
                f"{shown(name)} is no scheduler, though the module where DeepSpeed looks has something of that name"
            )
        meant = _meant(name)
        help_ = f"did you mean {shown(meant)}?" if meant else f"use one of {', '.join(deepspeed_schedulers())}"
    yield Finding(
        at=("scheduler", "type"),
        message=message,
        help=help_,
        depends_on=built.depends_on,
        severity=severity,
        fix=_fix(name) if isinstance(name, str) and name not in NOT_FROM_A_FILE else None,
    )


def _fix(name: str) -> Fix | None:
    meant = _meant(name)
    if meant is None:
        return None
    return replaced(("scheduler", "type"), meant, is_safe=re.sub("[-_ ]", "", name.lower()) == meant.lower())


def _meant(name: str) -> str | None:
    own = _OTHER_NAMES.get(name.lower()) or closest_word(name, deepspeed_schedulers())
    return own or closest_word(name, [known for known in torch_schedulers() if known not in NOT_FROM_A_FILE])


RULE = Rule(
    code="DSA510",
    name="unknown-scheduler",
    summary="the config names a learning rate scheduler that DeepSpeed can't build",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
    references=("https://www.deepspeed.ai/docs/config-json/#scheduler-parameters",),
)
