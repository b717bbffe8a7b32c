"""`warmup_type` is a word that DeepSpeed does not know, and the warm-up is logarithmic.

It knows "log" and "linear", in lower case. Any other word, "cosine" or "Linear", is replaced by "log" with one line in
the log: the learning rate then rises steeply, to half of its peak after the square root of the warm-up's steps.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.built_from_config import params_of, scheduler_from_config
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

KNOWN = ("log", "linear")

_AT = ("scheduler", "params", "warmup_type")

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 100, "warmup_type": "Linear"}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False, client_scheduler=False),
        reports=(
            Report(
                at="scheduler.params.warmup_type",
                message='WarmupLR (line 5) knows no warmup_type "Linear", and warms up logarithmically',
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 100, "warmup_type": "linear"}}
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
  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 100, "warmup_type": "linear"}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False, client_scheduler=False),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    built, kind = scheduler_from_config(context), context.block("scheduler").get("type")
    params = params_of(context.block("scheduler"))
    if built is None or kind not in ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR") or "warmup_type" not in params:
        return
    value = params["warmup_type"]
    if isinstance(value, list | dict) or value in KNOWN:
        return  # what can't be looked up is refused
    meant = value.strip().lower() if isinstance(value, str) else None
    yield Finding(
        at=_AT,
        message=f"{kind} ({context.line('scheduler', 'type')}) knows no warmup_type {shown(value)}, and warms up"
        " logarithmically",
        help='write "linear", or "log" for what runs now',
        depends_on=built.depends_on,
        fix=Fix(f'write "{meant}"', (SetValue(_AT, meant),), is_safe=meant == "log") if meant in KNOWN else None,
    )


RULE = Rule(
    code="DSA542",
    name="unknown-warmup-type",
    summary='warmup_type is neither "log" nor "linear", and counts as "log"',
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
)
