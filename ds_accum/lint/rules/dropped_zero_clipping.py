"""An Accelerate YAML switches clipping off with a 0, and DeepSpeed clips.

Accelerate hands `gradient_clipping` on if it is true, and a 0 is not; `DeepSpeedPlugin(gradient_clipping=0.0)` in a
script fares the same. DeepSpeed then takes its own default, which is 1.0 since 0.19.3. In a file of its own, named by
`deepspeed_config_file`, the 0 reaches DeepSpeed.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.embedded import accelerate_settings
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, Severity, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

_CONFIG = (
    '{{"compute_environment": "LOCAL_MACHINE", "distributed_type": "DEEPSPEED", "num_processes": 1,'
    ' "deepspeed_config": {{"zero_stage": 2, "gradient_clipping": {}}}}}'
)

BAD = (
    Example(
        config=_CONFIG.format("0"),
        launch=Launch(deepspeed_version=(0, 19, 8)),
        reports=(
            Report(
                at="deepspeed_config.gradient_clipping",
                message="Accelerate drops gradient_clipping 0, so DeepSpeed clips at 1.0 (its default)",
            ),
        ),
        deepspeed=None,
    ),
)

GOOD = (
    Example(config=_CONFIG.format("0"), launch=Launch(deepspeed_version=(0, 18, 3)), deepspeed=None),
    Example(config=_CONFIG.format("0.5"), launch=Launch(), deepspeed=None),
)


def check(context: LintContext) -> Iterator[Finding]:
    settings = accelerate_settings(context.document)
    if settings is None or "deepspeed_config_file" in settings:
        return
    clipping, default = settings.get("gradient_clipping"), context.config.top["gradient_clipping"]
    if type(clipping) in (int, float) and not clipping and default > 0:
        yield Finding(
            at=("deepspeed_config", "gradient_clipping"),
            message=f"Accelerate drops gradient_clipping {shown(clipping)}, so DeepSpeed clips at {shown(default)}"
            " (its default)",
            help="write a threshold that is never reached, such as 1e9, or name a file with deepspeed_config_file",
        )


RULE = Rule(
    code="DSA834",
    name="dropped-zero-clipping",
    summary="gradient_clipping 0 in an Accelerate YAML does not reach DeepSpeed",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    proof=Proof.OTHER_READER,
    needs="document",
    check=check,
    bad=BAD,
    good=GOOD,
)
