"""The gradient norm is switched off where something needs it.

`compute_grad_norm: false` saves ZeRO-1 and ZeRO-2 one pass over the gradients and one reduction. It is no switch for
other stages, and nothing that uses the norm works without it: clipping first of all, which is on unless the config sets
`gradient_clipping` to 0 (the default is 1.0), optimizer offload, ZenFlow, and the optimizer that DeepSpeed puts in the
place of ZeRO-1 for bf16 with fp32 accumulation. DeepSpeed says so only when it builds the optimizer, on every rank.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.mends import removed
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import origin, setting, zero_stage

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "zero_optimization": {
    "stage": 3,
    "compute_grad_norm": false
  }
}
""",
        reports=(
            Report(
                at="zero_optimization.compute_grad_norm",
                message="zero_optimization.compute_grad_norm can be false at ZeRO stages 1 and 2 only, not at"
                " ZeRO stage 3 (line 4)",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "zero_optimization": {
    "stage": 3
  }
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 2,
    "compute_grad_norm": false,
    "offload_optimizer": {"device": "cpu"}
  }
}
""",
        reports=(
            Report(
                at="zero_optimization.compute_grad_norm",
                message="zero_optimization.compute_grad_norm is false, but gradient_clipping 1.0 (the default) needs"
                " the norm",
            ),
            Report(
                at="zero_optimization.compute_grad_norm",
                message="zero_optimization.compute_grad_norm is false, but offload_optimizer (line 7) needs the norm",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {"device": "cpu"}
  }
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "gradient_clipping": 0,
  "bf16": {"enabled": true},
  "data_types": {"grad_accum_dtype": "fp32"},
  "zero_optimization": {"stage": 1, "compute_grad_norm": false}
}
""",
        reports=(
            Report(
                at="zero_optimization.compute_grad_norm",
                message="zero_optimization.compute_grad_norm is false, but ZeRO stage 1 (line 7) takes the norm of bf16"
                " gradients that add up in fp32 (line 6)",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "gradient_clipping": 0,
  "bf16": {"enabled": true},
  "data_types": {"grad_accum_dtype": "fp32"},
  "zero_optimization": {"stage": 1}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "gradient_clipping": 0,
  "zero_optimization": {"stage": 2, "compute_grad_norm": false}
}
"""
    ),
)

_AT = ("zero_optimization", "compute_grad_norm")


def check(context: LintContext) -> Iterator[Finding]:
    config = context.config
    if context.block("zero_optimization").get("compute_grad_norm", True) or config.zero_stage is None:
        return
    if config.zero_stage in (0, 3):
        yield Finding(
            at=_AT,
            when=When.LOAD,
            message=f"zero_optimization.compute_grad_norm can be false at ZeRO stages 1 and 2 only, not at"
            f" {zero_stage(context)}",
            help="remove it",
            fix=removed(_AT),
        )
        return
    for reason in _needs(context):
        yield Finding(
            at=_AT,
            message=f"zero_optimization.compute_grad_norm is false, but {reason}",
            help="remove it, or switch off what needs the norm",
            fix=removed(_AT, is_safe=False),
        )


def _needs(context: LintContext) -> Iterator[str]:
    config = context.config
    if support.uses_bf16_optimizer(config):
        where = origin(context, "data_types", "grad_accum_dtype")
        yield f"{zero_stage(context)} takes the norm of bf16 gradients that add up in fp32 ({where})"
        return
    clipping = config.top.get("gradient_clipping")
    if isinstance(clipping, int | float) and clipping > 0:
        yield f"{setting(context, clipping, 'gradient_clipping')} needs the norm"
    if support.zenflow(config) is not None:
        yield f"zenflow ({context.line('zero_optimization', 'zenflow')}) needs the norm"
    if support.optimizer_device(config) in ("cpu", "nvme"):
        key = "offload_optimizer" if context.block("zero_optimization.offload_optimizer").present else "cpu_offload"
        yield f"{key} ({context.line('zero_optimization', key)}) needs the norm"


RULE = Rule(
    code="DSA201",
    name="disabled-gradient-norm",
    summary="compute_grad_norm is false where something needs the norm of the gradients",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
