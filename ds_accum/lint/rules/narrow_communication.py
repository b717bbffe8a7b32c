"""Gradients are rounded to a narrower dtype than the model's while they are reduced.

`communication_data_type` halves the traffic of an fp32 model, at a price: bf16 keeps 8 significant bits of each
gradient, and fp16 turns everything above 65504 into infinity. The sum over the ranks has to fit as well. Without ZeRO
nobody looks for infinities in an fp32 model, and they go into the weights; ZeRO skips the step.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, RemoveKey
from ds_accum.lint.launch_facts import is_one_rank, splits_the_world
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import zero_stage
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 0.0,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}},
  "communication_data_type": "fp16"
}
""",
        launch=Launch(world_size=2),
        reports=(
            Report(
                at="communication_data_type",
                message='communication_data_type "fp16" makes gradients of an fp32 model infinite beyond 65504, and at'
                " ZeRO stage 0 (the default) they go into the weights",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "gradient_clipping": 0.0,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}}
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "communication_data_type": "bf16",
  "zero_optimization": {"stage": 2}
}
""",
        launch=Launch(world_size=2),
        reports=(
            Report(
                at="communication_data_type",
                message='communication_data_type "bf16" rounds the gradients of an fp32 model to 8 significant bits'
                " before they are summed over the ranks",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 2}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 0.0,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}},
  "communication_data_type": "fp32"
}
""",
        launch=Launch(world_size=2),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    config = context.config
    word = config.top.get("communication_data_type")
    # DeepSpeed takes it in any case, in three words.
    dtype = support.dtype_of(word.lower()) if isinstance(word, str) and word.lower() in ("fp16", "bf16") else None
    model = support.model_dtype(config)
    if dtype is None or dtype == model or model == "fp16" or config.zero_stage is None or is_one_rank(context):
        return
    # torch_autocast and sequence parallelism reduce in dtypes of their own.
    autocasts = "torch_autocast" in config.top.block.keys and config.enabled("torch_autocast")
    if autocasts or context.launch.sequence_parallel_size > 1 or splits_the_world(context):
        return
    if dtype == "bf16":
        loss = "rounds the gradients of an fp32 model to 8 significant bits before they are summed over the ranks"
    else:
        article = "an" if model == "fp32" else "a"
        then = "they go into the weights" if (config.zero_stage, model) == (0, "fp32") else "the step is skipped"
        loss = f"makes gradients of {article} {model} model infinite beyond 65504, and at {zero_stage(context)} {then}"
    yield Finding(
        at=("communication_data_type",),
        message=f"communication_data_type {shown(word)} {loss}",
        help='remove it, or use "fp32"',
        severity=Severity.INFO if dtype == "bf16" else None,
        fix=Fix(title="remove communication_data_type", changes=(RemoveKey(("communication_data_type",)),)),
    )


RULE = Rule(
    code="DSA315",
    name="narrow-communication",
    summary="gradients are rounded to a narrower dtype than the model's while they are reduced",
    rationale=__doc__,
    when=When.NEVER,
    check=check,
    severity=Severity.WARNING,
    bad=BAD,
    good=GOOD,
)
