"""A batch size is a fraction or a boolean, and DeepSpeed computes with it.

DeepSpeed does not look at the type of the three batch sizes. An accumulation of 0.5 makes every micro-batch a
boundary and divides each loss by 0.5, which doubles the gradient; with 1.5 the optimizer steps after every third
micro-batch, whose sum was divided by 1.5. A micro batch of 2.5 works until a data loader is built with it. `true` is
the number 1.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.resolve import ACCUMULATION, BATCH_KEYS
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 0.5,
  "gradient_clipping": 0.0,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}}
}
""",
        reports=(
            Report(
                at="gradient_accumulation_steps",
                message="gradient_accumulation_steps is 0.5, and DeepSpeed divides each loss by 0.5",
            ),
        ),
    ),
    Example(
        config='{"train_micro_batch_size_per_gpu": 2.5}',
        reports=(
            Report(
                at="train_micro_batch_size_per_gpu",
                message="train_micro_batch_size_per_gpu is 2.5, and no micro-batch holds so many samples",
            ),
        ),
    ),
    Example(
        config='{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": true}',
        reports=(
            Report(
                at="gradient_accumulation_steps",
                message="gradient_accumulation_steps is true, which DeepSpeed takes for 1",
            ),
        ),
        fixed='{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1}',
    ),
)

GOOD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 2,
  "gradient_clipping": 0.0,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}}
}
"""
    ),
    # Hjson reads this as an integer.
    Example(config='{"train_micro_batch_size_per_gpu": 2.0}'),
)


def check(context: LintContext) -> Iterator[Finding]:
    batch = context.batch
    if batch.fault is not None:
        return  # refused, by a rule of its own
    for key in BATCH_KEYS:
        value = batch.written.get(key)
        if value is True:
            yield Finding(
                at=(key,),
                message=f"{key} is true, which DeepSpeed takes for 1",
                help="write an integer",
                fix=Fix(title="write 1", changes=(SetValue((key,), 1),), is_safe=True),
            )
        elif isinstance(value, float) and not value.is_integer():
            is_wrong = key == ACCUMULATION and context.values.get("managed_gradient_accumulation", True)
            yield Finding(
                at=(key,),
                severity=Severity.ERROR if is_wrong else None,
                message=f"{key} is {shown(value)}, and {_what_follows(key, value)}",
                help="write an integer",
            )


def _what_follows(key: str, value: float) -> str:
    if key == ACCUMULATION:
        return f"DeepSpeed divides each loss by {shown(value)}"
    return "no micro-batch holds so many samples" if key.startswith("train_micro") else "no step has so many samples"


RULE = Rule(
    code="DSA110",
    name="batch-size-not-whole",
    summary="a batch size is a fraction or a boolean, and DeepSpeed computes with it",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
)
