"""`auto` where Accelerate knows no automatism.

In an Accelerate YAML, `gradient_accumulation_steps: auto` and `gradient_clipping: auto` leave the value to the script.
The stage must be a number, and the flag for building the model in pieces a boolean: what is written there is converted
when the plugin is made, and "auto" can't be.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.embedded import accelerate_settings
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, When
from ds_accum.lint.rule import Example, Report, Rule

_CONFIG = (
    '{{"compute_environment": "LOCAL_MACHINE", "distributed_type": "DEEPSPEED", "num_processes": 1,'
    ' "deepspeed_config": {{{}}}}}'
)

BAD = (
    Example(
        config=_CONFIG.format('"zero_stage": "auto"'),
        launch=Launch(),
        reports=(
            Report(at="deepspeed_config.zero_stage", message='zero_stage is "auto", which Accelerate can\'t convert'),
        ),
        deepspeed=None,
    ),
    Example(
        config=_CONFIG.format('"zero_stage": 3, "zero3_init_flag": "auto"'),
        launch=Launch(),
        reports=(
            Report(
                at="deepspeed_config.zero3_init_flag",
                message='zero3_init_flag is "auto", which Accelerate can\'t convert',
            ),
        ),
        deepspeed=None,
    ),
)

GOOD = (
    Example(
        config=_CONFIG.format('"zero_stage": 2, "gradient_accumulation_steps": "auto", "gradient_clipping": "auto"'),
        launch=Launch(),
        deepspeed=None,
    ),
)

_VALUES = {"zero_stage": "0, 1, 2 or 3", "zero3_init_flag": "true or false"}


def check(context: LintContext) -> Iterator[Finding]:
    settings = accelerate_settings(context.document)
    for name, values in _VALUES.items() if settings is not None else ():
        if settings is not None and settings.get(name) == "auto":
            yield Finding(
                at=("deepspeed_config", name),
                message=f'{name} is "auto", which Accelerate can\'t convert',
                help=f"write {values}",
            )


RULE = Rule(
    code="DSA835",
    name="unusable-auto-in-accelerate",
    summary="auto in an Accelerate YAML where a value must be given",
    rationale=__doc__,
    when=When.START,
    proof=Proof.OTHER_READER,
    needs="document",
    check=check,
    bad=BAD,
    good=GOOD,
    noticed_by="Accelerate",
)
