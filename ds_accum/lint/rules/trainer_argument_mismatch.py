"""The config and the arguments of Hugging Face's Trainer say two things.

Trainer replaces each "auto" by its argument and compares every other value that has one. What differs it refuses, once
the model is loaded and every rank is up ("Please correct the following DeepSpeed config values that mismatch
TrainingArguments values"). An argument that nobody gave counts with its default: a config with bf16 on needs `--bf16`.

With `--hf-args FILE` or `--hf-arg NAME=VALUE` the same comparison is made before the launch. "auto" ends it for good:
one number then stands in one place.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.huggingface import Mismatch
from ds_accum.config.launch import Launch
from ds_accum.config.resolve import GLOBAL_BATCH
from ds_accum.config.training_arguments import TrainingArguments
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import dotted, shown, what

BAD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": "auto",
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 2}
}
""",
        launch=Launch(hf_arguments=TrainingArguments.of({"per_device_train_batch_size": 8})),
        reports=(
            Report(
                at="train_micro_batch_size_per_gpu",
                message="train_micro_batch_size_per_gpu is 4, but per_device_train_batch_size is 8 (--hf-args), and"
                " Trainer refuses to start",
            ),
            Report(
                at="bf16.enabled",
                message="bf16.enabled is true, but bf16 is false (its default), and Trainer refuses to start",
            ),
        ),
        deepspeed=None,
        fixed="""{
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto",
  "bf16": {"enabled": "auto"},
  "zero_optimization": {"stage": 2}
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 64,
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto",
  "zero_optimization": {"stage": 2}
}
""",
        launch=Launch(
            world_size=4,
            hf_arguments=TrainingArguments.of({"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}),
        ),
        reports=(
            Report(
                at="train_batch_size",
                message="train_batch_size is 64, but 4 ranks x per_device_train_batch_size 8 (--hf-args)"
                " x gradient_accumulation_steps 1 (--hf-args) is 32, and Trainer refuses to start",
            ),
        ),
        deepspeed=None,
        fixed="""{
  "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto",
  "zero_optimization": {"stage": 2}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto",
  "gradient_clipping": "auto",
  "bf16": {"enabled": "auto"},
  "zero_optimization": {"stage": 2}
}
""",
        launch=Launch(hf_arguments=TrainingArguments.of({"per_device_train_batch_size": 8, "bf16": True})),
        deepspeed=None,
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    for mismatch in context.mismatches:
        name = dotted(mismatch.path)
        value = what(mismatch.value) if isinstance(mismatch.value, str) else shown(mismatch.value)
        yield Finding(
            at=mismatch.path,
            message=f"{name} is {value}, but {_expected(mismatch, context.launch)}, and Trainer refuses to start",
            help=f'write "auto", and Trainer fills in {shown(mismatch.expected)}; or change the argument',
            fix=Fix(
                title=f'set {name} to "auto"',
                changes=(SetValue(mismatch.path, "auto"),),
                is_safe=False,
            ),
        )


def _expected(mismatch: Mismatch, launch: Launch) -> str:
    """The other side: "per_device_train_batch_size is 8 (--hf-args)"."""
    arguments = launch.hf_arguments
    assert arguments is not None, "without arguments nothing is compared"
    values = {name: f"{shown(arguments[name])} ({arguments.origin(name)})" for name in mismatch.arguments}
    if mismatch.path == (GLOBAL_BATCH,):
        factors = " x ".join(f"{name} {value}" for name, value in values.items())
        return f"{launch.world_size} ranks x {factors} is {shown(mismatch.expected)}"
    told = {name: value for name, value in values.items() if name in arguments.given}
    if mismatch.path[-1] == "betas":
        return " and ".join(f"{name} is {value}" for name, value in values.items())
    if len(values) == 1 or not told:
        name = mismatch.arguments[0]
        # An argument of the same name is another thing than the key.
        owner = "Trainer's " if mismatch.path == (name,) else ""
        return f"{owner}{name} is {values[name]}"
    return " and ".join(f"{name} is {value}" for name, value in told.items())


RULE = Rule(
    code="DSA810",
    name="trainer-argument-mismatch",
    summary="a value of the config is not that of Trainer's arguments",
    rationale=__doc__,
    when=When.START,
    check=check,
    proof=Proof.OTHER_READER,
    bad=BAD,
    good=GOOD,
    references=("https://huggingface.co/docs/transformers/deepspeed#deepspeed-and-trainer",),
    noticed_by="Trainer",
)
