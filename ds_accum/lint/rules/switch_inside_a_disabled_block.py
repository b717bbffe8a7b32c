"""A part of `data_efficiency` is on although the block around it is off.

The engine asks only the innermost switch: `random_ltd.enabled` drops tokens and `curriculum_learning.enabled` replaces
the sampler of the training data, whatever `enabled` says one or two levels further out. To switch the whole off takes
every innermost switch.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.document import Path
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import dotted, shown

_PARTS = (
    ("data_efficiency", "data_routing", "random_ltd"),
    ("data_efficiency", "data_sampling", "curriculum_learning"),
)

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "data_efficiency": {
    "enabled": false,
    "data_routing": {
      "enabled": true,
      "random_ltd": {
        "enabled": true,
        "total_layer_num": 24,
        "random_ltd_layer_num": 22,
        "random_ltd_schedule": {
          "min_value": 128,
          "max_value": 2048,
          "schedule_type": "fixed_linear",
          "schedule_config": {"require_steps": 200000, "seq_per_step": 16}
        }
      }
    }
  }
}
""",
        reports=(
            Report(
                at="data_efficiency.enabled",
                message="data_efficiency.enabled is false, but data_efficiency.data_routing.random_ltd is on: the"
                " engine asks only its own enabled true (line 10)",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "data_efficiency": {
    "enabled": false,
    "data_routing": {
      "enabled": true,
      "random_ltd": {
        "enabled": false,
        "total_layer_num": 24,
        "random_ltd_layer_num": 22,
        "random_ltd_schedule": {
          "min_value": 128,
          "max_value": 2048,
          "schedule_type": "fixed_linear",
          "schedule_config": {"require_steps": 200000, "seq_per_step": 16}
        }
      }
    }
  }
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
  "data_efficiency": {"enabled": false, "data_routing": {"random_ltd": {"enabled": false}}}
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    if "data_efficiency" not in context.values:
        return
    reported: set[Path] = set()
    for part in _PARTS:
        inner = context.block(".".join(part))
        if not inner.present or not inner.get("enabled"):
            continue
        for depth in (1, 2):
            outer = context.block(".".join(part[:depth]))
            at = (*part[:depth], "enabled")
            if not outer.written("enabled") or outer.get("enabled") or at in reported:
                continue
            reported.add(at)
            switch = (*part, "enabled")
            yield Finding(
                at=at,
                message=f"{dotted(at)} is {shown(outer.get('enabled'))}, but {dotted(part)} is on: the engine asks only"
                f" its own enabled {shown(inner.get('enabled'))} ({context.line(*switch)})",
                help=f"set {dotted(switch)} to false as well",
                fix=Fix(f"set {dotted(switch)} to false", (SetValue(switch, False),)),
            )


RULE = Rule(
    code="DSA561",
    name="switch-inside-a-disabled-block",
    summary="a part of data_efficiency is on inside a block that is off",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
)
