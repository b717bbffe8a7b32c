"""`zero3_init_flag` is on, and the stage is not 3.

It asks for `deepspeed.zero.Init`, which builds a model in pieces that each rank keeps one of. Only ZeRO stage 3 has
such pieces; at any other stage Accelerate warns and sets the flag to false. Each rank then builds the whole model, and
whoever counted on the flag for a model that does not fit runs out of memory there.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.embedded import accelerate_settings
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, Severity, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

# YAML, as every JSON text is.
_CONFIG = '{{"distributed_type": "DEEPSPEED", "deepspeed_config": {{"zero_stage": {}, "zero3_init_flag": true}}}}'

BAD = (
    Example(
        config=_CONFIG.format(2),
        launch=Launch(),
        reports=(
            Report(
                at="deepspeed_config.zero3_init_flag",
                message="zero3_init_flag is true, which means nothing at ZeRO stage 2, so Accelerate sets it to false",
            ),
        ),
        deepspeed=None,
        fixed='{"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 2, "zero3_init_flag": false}}',
    ),
)

GOOD = (Example(config=_CONFIG.format(3), launch=Launch(), deepspeed=None),)

_DEFAULT_STAGE = 2
_AT = ("deepspeed_config", "zero3_init_flag")


def check(context: LintContext) -> Iterator[Finding]:
    settings = accelerate_settings(context.document)
    if settings is None or "deepspeed_config_file" in settings or settings.get("zero3_init_flag") is not True:
        return
    stage = settings.get("zero_stage", _DEFAULT_STAGE)
    if type(stage) is not int or stage == 3:
        return
    yield Finding(
        at=_AT,
        message=f"zero3_init_flag is true, which means nothing at ZeRO stage {shown(stage)}, so Accelerate sets it to"
        " false",
        help="write false, or zero_stage: 3",
        fix=Fix(title="set zero3_init_flag to false", changes=(SetValue(_AT, False),), is_safe=True),
    )


RULE = Rule(
    code="DSA830",
    name="zero-init-without-stage-3",
    summary="zero3_init_flag of an Accelerate YAML has no effect",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.INFO,
    proof=Proof.OTHER_READER,
    needs="document",
    check=check,
    bad=BAD,
    good=GOOD,
)
