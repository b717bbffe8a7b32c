"""Some of the batch sizes are "auto" and some are numbers, in a file for Hugging Face.

Trainer fills in each "auto" from its own arguments, and then compares every number of the file with the same
arguments. One that differs is refused, and the argument's default is 1 for the accumulation and 8 for the micro
batch: a number in the file is no way to set them, it has to be given twice. A global batch written as a number holds
at one world size only.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.config.resolve import BATCH_KEYS
from ds_accum.config.training_arguments import TrainingArguments
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, Severity, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config="""{
  "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": 4
}
""",
        launch=Launch(framework="huggingface"),
        reports=(
            Report(
                at="gradient_accumulation_steps",
                message='gradient_accumulation_steps is 4, while train_batch_size is "auto" (line 2): Trainer refuses'
                " it unless its own arguments come to the same",
            ),
        ),
        deepspeed=None,
        fixed="""{
  "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto"
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto"
}
""",
        launch=Launch(framework="huggingface"),
        deepspeed=None,
    ),
    # With Trainer's arguments nothing is left open, here not even the global batch, which needs the world size.
    Example(
        config="""{
  "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": 4
}
""",
        launch=Launch(framework="huggingface", hf_arguments=TrainingArguments.of({"gradient_accumulation_steps": 4})),
        deepspeed=None,
    ),
    Example(
        config='{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "bf16": {"enabled": "auto"}}',
        launch=Launch(framework="huggingface"),
        deepspeed=None,
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    if context.launch.framework != "huggingface" or context.embedded.base:
        return
    if context.launch.hf_arguments is not None:
        return  # the comparison itself is made, by a rule of its own
    filled_in = [key for key in BATCH_KEYS if (key,) in context.embedded.filled_in]
    if not filled_in:
        return
    for key in BATCH_KEYS:
        value = context.values.get(key)
        if type(value) is int:
            yield Finding(
                at=(key,),
                message=f'{key} is {shown(value)}, while {filled_in[0]} is "auto" ({context.line(filled_in[0])}):'
                " Trainer refuses it unless its own arguments come to the same",
                help='write "auto" for all three, and give the numbers to Trainer',
                fix=Fix(title='write "auto"', changes=(SetValue((key,), "auto"),)),
            )


RULE = Rule(
    code="DSA111",
    name="batch-partly-auto",
    summary='some batch sizes are "auto" and some are numbers',
    rationale=__doc__,
    when=When.START,
    severity=Severity.INFO,
    proof=Proof.READ,
    check=check,
    bad=BAD,
    good=GOOD,
    noticed_by="Trainer",
)
