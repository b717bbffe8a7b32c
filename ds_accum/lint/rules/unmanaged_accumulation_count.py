"""The script owns the accumulation boundary, and DeepSpeed still divides by the number in the config.

With `managed_gradient_accumulation: false` every `step()` ends a window, whatever `gradient_accumulation_steps` says.
`backward()` goes on dividing each loss by that number. The gradient is the mean of the window only if the script calls
`backward()` exactly so often before each `step()`: three calls for a number of 4 are three quarters of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.launch_facts import accumulation_steps
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import origin
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 4,
  "managed_gradient_accumulation": false,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
        reports=(
            Report(
                at="gradient_accumulation_steps",
                message="backward() divides the loss by gradient_accumulation_steps 4 (line 3), while step() ends the"
                " window after any number of them, as managed_gradient_accumulation is false (line 4)",
            ),
        ),
        fixed="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 1,
  "managed_gradient_accumulation": false,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 4,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
"""
    ),
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 1,
  "managed_gradient_accumulation": false,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
"""
    ),
)

_AT = ("gradient_accumulation_steps",)


def check(context: LintContext) -> Iterator[Finding]:
    top = context.config.top
    managed = top.get("managed_gradient_accumulation")
    if "managed_gradient_accumulation" not in top.block.keys or managed or context.engine == "ds-accum":
        return
    steps = accumulation_steps(context)
    if steps is None or steps < 2:
        return
    yield Finding(
        at=_AT,
        message=f"backward() divides the loss by gradient_accumulation_steps {steps} ({origin(context, *_AT)}), while"
        f" step() ends the window after any number of them, as managed_gradient_accumulation is {shown(managed)}"
        f" ({origin(context, 'managed_gradient_accumulation')})",
        help=f"call backward() {steps} times before each step(), or set it to 1 and divide the losses in the script",
        fix=Fix(title="set gradient_accumulation_steps to 1", changes=(SetValue(_AT, 1),)),
    )


RULE = Rule(
    code="DSA420",
    name="unmanaged-accumulation-count",
    summary="the script owns the accumulation boundary, and losses are still divided by the number in the config",
    rationale=__doc__,
    when=When.NEVER,
    check=check,
    severity=Severity.INFO,
    bad=BAD,
    good=GOOD,
    references=("DeepSpeed PR #8184",),
)
