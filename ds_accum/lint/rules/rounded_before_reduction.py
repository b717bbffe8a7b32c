"""Gradients are added up in fp32, and rounded to 16 bits before they are reduced.

`data_types.grad_accum_dtype` "fp32" keeps the sum of a rank's micro-batches exact. ZeRO-1 reduces that sum over the
ranks once, at the end of the step, in `communication_data_type`, which is the precision of the model unless the config
says otherwise. There the sum is rounded, and what fp32 kept is gone: measured, the error is the 0.25% of a single bf16
number however many micro-batches there are. ZeRO-2 and ZeRO-3 reduce every micro-batch and add up the results, which
does gain from fp32.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.launch_facts import is_one_rank, splits_the_world
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import origin, zero_stage

BAD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 4,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "bf16": {"enabled": true},
  "data_types": {"grad_accum_dtype": "fp32"},
  "zero_optimization": {"stage": 1}
}
""",
        launch=Launch(world_size=2),
        reports=(
            Report(
                at="data_types.grad_accum_dtype",
                message="gradients add up in fp32 (line 6), and ZeRO stage 1 (line 7) rounds the sum to bf16, its"
                " communication_data_type (the default), before it is reduced",
            ),
        ),
        fixed="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 4,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "bf16": {"enabled": true},
  "data_types": {"grad_accum_dtype": "fp32"},
  "zero_optimization": {"stage": 1},
  "communication_data_type": "fp32"
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 4,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "bf16": {"enabled": true},
  "data_types": {"grad_accum_dtype": "fp32"},
  "communication_data_type": "fp32",
  "zero_optimization": {"stage": 1}
}
""",
        launch=Launch(world_size=2),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    config = context.config
    model, word = support.model_dtype(config), config.top.get("communication_data_type")
    if config.zero_stage != 1 or model not in ("fp16", "bf16") or support.accumulates_in(config) != "fp32":
        return
    # With sequence parallelism another key says what is reduced in, fp32 unless it is set.
    sequence_parallel = context.launch.sequence_parallel_size > 1 or splits_the_world(context)
    if word is not None or is_one_rank(context) or sequence_parallel:
        return
    at = ("data_types", "grad_accum_dtype")
    yield Finding(
        at=at,
        message=f"gradients add up in fp32 ({origin(context, *at)}), and {zero_stage(context)} rounds the sum to"
        f" {model}, its communication_data_type (the default), before it is reduced",
        help='set "communication_data_type": "fp32" as well',
        fix=Fix(title="reduce in fp32 as well", changes=(SetValue(("communication_data_type",), "fp32"),)),
    )


RULE = Rule(
    code="DSA312",
    name="rounded-before-reduction",
    summary="gradients are added up in fp32, and rounded to 16 bits before they are reduced",
    rationale=__doc__,
    when=When.NEVER,
    check=check,
    severity=Severity.INFO,
    bad=BAD,
    good=GOOD,
)
