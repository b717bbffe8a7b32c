"""The config says Adam and AdamW is run, or the other way round.

DeepSpeed's one Adam has a switch, `adam_w_mode`, which is on unless the config turns it off: with type "Adam" the
weight decay is decoupled from the gradient, as in AdamW, and not the L2 term that torch's Adam adds to it. Nothing
says so when training starts. The name "AdamW" forces the switch on, and a string such as "false" counts as true, for
`torch_adam` as well. Without a weight decay the two are the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.built_from_config import optimizer_from_config, params_of
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, RemoveKey, SetValue
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import is_number, shown

SWITCH = "adam_w_mode"
PARAMS = ("optimizer", "params")

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.1, "adam_w_mode": false}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="optimizer.params.adam_w_mode",
                message="adam_w_mode false is ignored: the type AdamW (line 3) stands for decoupled weight decay"
                " whatever the switch says",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.1}}
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "Adam", "params": {"lr": 1e-4, "weight_decay": 0.1, "adam_w_mode": "false"}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="optimizer.params.adam_w_mode",
                message='adam_w_mode is the string "false", which counts as true',
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "Adam", "params": {"lr": 1e-4, "weight_decay": 0.1, "adam_w_mode": false}}
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "Adam", "params": {"lr": 1e-4, "weight_decay": 0.1}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="optimizer.type",
                message="the type Adam runs AdamW, because adam_w_mode is true (the default): weight_decay 0.1 (line 3)"
                " is decoupled from the gradient",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.1}}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "Adam", "params": {"lr": 1e-4, "weight_decay": 0.1, "adam_w_mode": false}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.1}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
    ),
    # Without a weight decay there is no difference.
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "Adam", "params": {"lr": 1e-4}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    built, kind = optimizer_from_config(context), context.block("optimizer").get("type")
    if built is None or not isinstance(kind, str) or kind.lower() not in ("adam", "adamw"):
        return
    params = params_of(context.block("optimizer"))
    for switch in ("torch_adam", SWITCH):
        value = params.get(switch)
        if isinstance(value, str) and value.strip().lower() in ("false", "no", "off", "0", ""):
            if value:
                yield _a_string(switch, value, built.depends_on)
            return
    decay = params.get("weight_decay")
    if not is_number(decay) or not decay:
        return
    if kind.lower() == "adamw":
        if SWITCH in params and not params[SWITCH]:
            yield Finding(
                at=(*PARAMS, SWITCH),
                message=f"{SWITCH} {shown(params[SWITCH])} is ignored: the type {kind}"
                f" ({context.line('optimizer', 'type')}) stands for decoupled weight decay whatever the switch says",
                help=f'for torch\'s Adam, write the type "Adam" with {SWITCH} false; else remove the switch',
                depends_on=built.depends_on,
                fix=Fix(f"remove {SWITCH}", (RemoveKey((*PARAMS, SWITCH)),), is_safe=True),
            )
    elif SWITCH not in params:
        yield Finding(
            at=("optimizer", "type"),
            message=f"the type {kind} runs AdamW, because {SWITCH} is true (the default): weight_decay {shown(decay)}"
            f" ({context.line(*PARAMS, 'weight_decay')}) is decoupled from the gradient",
            help=f'write "AdamW" if that is meant, and "{SWITCH}": false in optimizer.params for torch\'s Adam',
            depends_on=built.depends_on,
            severity=Severity.INFO,
            fix=Fix('write "AdamW", which is what runs', (SetValue(("optimizer", "type"), "AdamW"),), is_safe=True),
        )


def _a_string(switch: str, value: str, depends_on: str | None) -> Finding:
    return Finding(
        at=(*PARAMS, switch),
        message=f"{switch} is the string {shown(value)}, which counts as true",
        help="write false, without quotes",
        depends_on=depends_on,
        fix=Fix("write false without quotes", (SetValue((*PARAMS, switch), False),)),
    )


RULE = Rule(
    code="DSA530",
    name="adam-is-adamw",
    summary="the weight decay is that of AdamW where the config says Adam, or says adam_w_mode false",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
)
