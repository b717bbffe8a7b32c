"""DeepSpeed's own mixture-of-experts layers are combined with a ZeRO setting that they refuse.

Native MoE layers (`deepspeed.moe.layer.MoE`) do not run at ZeRO stage 3; at stages 1 and 2 they need `reduce_scatter`,
and at stage 2 contiguous gradients. The engine finds out when the ZeRO optimizer is built. Said only where the launch
has expert parallel ranks (`--ep`) and the config does not ask for AutoEP, which has rules of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, Severity, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import setting, zero_stage

_ZERO = "zero_optimization"

BAD = (
    Example(
        config='{"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0, "zero_optimization": {"stage": 3}}',
        launch=Launch(world_size=8, expert_parallel_size=2),
        reports=(
            Report(
                at="zero_optimization.stage",
                message="native MoE layers (expert parallel 2) do not run at ZeRO stage 3 (line 1)",
            ),
        ),
    ),
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_clipping": 1.0,
  "zero_optimization": {"stage": 2, "reduce_scatter": false, "contiguous_gradients": false}
}
""",
        launch=Launch(world_size=8, expert_parallel_size=2),
        reports=(
            Report(
                at="zero_optimization.reduce_scatter",
                message="native MoE layers (expert parallel 2) do not run with reduce_scatter false (line 4) at ZeRO"
                " stage 2 (line 4)",
            ),
            Report(
                at="zero_optimization.contiguous_gradients",
                message="native MoE layers (expert parallel 2) do not run with contiguous_gradients false (line 4) at"
                " ZeRO stage 2 (line 4)",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config='{"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0, "zero_optimization": {"stage": 2}}',
        launch=Launch(world_size=8, expert_parallel_size=2),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    config, experts = context.config, context.launch.expert_parallel_size
    if experts == 1 or config.enabled("expert_parallel"):
        return
    moe, zero = f"native MoE layers (expert parallel {experts})", context.block(_ZERO)
    if config.zero_stage == 3:
        yield Finding(
            at=(_ZERO, "stage"),
            message=f"{moe} do not run at {zero_stage(context)}",
            help="use stage 1 or 2, or AutoEP (the expert_parallel block)",
        )
    if config.zero_stage not in (1, 2) or support.uses_bf16_optimizer(config):
        return
    offloaded = support.optimizer_device(config) in ("cpu", "nvme")
    for key in ("reduce_scatter", "contiguous_gradients"):
        # At stage 1 contiguous gradients are not asked for, and an offload makes them so.
        if zero.get(key) is False and (key == "reduce_scatter" or (config.zero_stage == 2 and not offloaded)):
            yield Finding(
                at=(_ZERO, key),
                message=f"{moe} do not run with {setting(context, False, _ZERO, key)} at {zero_stage(context)}",
                help=f"remove {key}: it is on by default",
            )


RULE = Rule(
    code="DSA615",
    name="expert-parallel-conflict",
    summary="native MoE layers are combined with a ZeRO setting that they refuse",
    rationale=__doc__,
    when=When.START,
    severity=Severity.WARNING,
    proof=Proof.READ,
    check=check,
    bad=BAD,
    good=GOOD,
)
