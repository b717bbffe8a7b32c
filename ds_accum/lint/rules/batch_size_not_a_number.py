"""A batch size is a string, `"auto"` or something else that is no number.

DeepSpeed does not look at the type of the three batch sizes: it divides and compares, and fails with "'>' not supported
between instances of 'str' and 'int'" or "unsupported operand type(s) for //", without naming a key. `"auto"` is a
word of Hugging Face's integration, which replaces it before DeepSpeed sees it; a plain DeepSpeed script must not use
it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.config.resolve import BATCH_KEYS
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.mends import without_quotes
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import what

BAD = (
    Example(
        config='{"train_batch_size": "32"}',
        reports=(Report(at="train_batch_size", message='train_batch_size must be an integer, but is the string "32"'),),
        fixed='{"train_batch_size": 32}',
    ),
    Example(
        config='{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": 4}',
        launch=Launch(world_size=1, framework="raw"),
        reports=(
            Report(
                at="train_batch_size",
                message='train_batch_size is "auto", which only Hugging Face\'s integration replaces by a number',
            ),
        ),
    ),
)

GOOD = (
    Example(config='{"train_batch_size": 32, "gradient_accumulation_steps": null}'),
    Example(
        config='{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"}',
        launch=Launch(world_size=1, framework="huggingface"),
        deepspeed=None,
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    for key in BATCH_KEYS:
        value = context.values.get(key)
        if value is None or isinstance(value, int | float):
            continue
        if value == "auto":
            message = f'{key} is "auto", which only Hugging Face\'s integration replaces by a number'
            help_ = "write the number, or pass --framework huggingface if Trainer or Accelerate reads this file"
        else:
            message = f"{key} must be an integer, but is {what(value)}"
            digits = isinstance(value, str) and value.strip().isdecimal()
            help_ = f"write {value.strip()} without quotes" if digits else "write an integer"
        yield Finding(at=(key,), message=message, help=help_, fix=without_quotes((key,), value, integer=True))


RULE = Rule(
    code="DSA104",
    name="batch-size-not-a-number",
    summary="a batch size is a string or something else that is no number",
    rationale=__doc__,
    when=When.LOAD,
    check=check,
    bad=BAD,
    good=GOOD,
)
