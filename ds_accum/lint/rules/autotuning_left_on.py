"""`autotuning.enabled` ends an ordinary training after a few steps.

The block is for experiments that the autotuner starts (`deepspeed --autotuning run`). The engine itself looks at it in
every job: after `end_profile_step` + 1 optimizer steps it writes its timings and ends the process with exit code 0, on
every rank. Left in a config for training, that is a job that stops after six steps and looks finished.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import origin
from ds_accum.lint.wording import is_number, number

_BLOCK = "autotuning"

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "autotuning": {"enabled": true}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="autotuning.enabled",
                message="the engine ends the process after 6 optimizer steps (end_profile_step 5, the default, + 1),"
                " unless the autotuner runs the job",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "autotuning": {"enabled": false}
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
  "autotuning": {"enabled": false}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    tuning = context.block(_BLOCK)
    last = tuning.get("end_profile_step")
    if not tuning.present or not tuning.get("enabled") or not is_number(last):
        return
    yield Finding(
        at=(_BLOCK, "enabled"),
        message=f"the engine ends the process after {number(last + 1)} optimizer steps (end_profile_step"
        f" {number(last)}, {origin(context, _BLOCK, 'end_profile_step')}, + 1), unless the autotuner runs the job",
        help='set "enabled": false for training',
        fix=Fix('set "enabled": false', (SetValue((_BLOCK, "enabled"), False),)),
    )


RULE = Rule(
    code="DSA560",
    name="autotuning-left-on",
    summary="the engine ends the process after a few steps, as for the autotuner",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
)
