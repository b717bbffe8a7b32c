"""Trainer continues with another batch, or for another number of steps.

Trainer finds its place in the data by counting: so many optimizer steps, each of so many micro-batches, each of so many
samples. With other numbers than the checkpoint was saved with the place is another: samples are seen twice, or never.
The schedule of the learning rate continues at the same step of a curve that is computed anew from the new number of
steps, so that the learning rate jumps. Trainer logs a warning about it and goes on.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.checkpoint import checkpoint_from_names
from ds_accum.config.launch import Launch
from ds_accum.config.resolve import MICRO_BATCH
from ds_accum.config.training_arguments import TrainingArguments
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, Severity, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

_CONFIG = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",'
    ' "zero_optimization": {"stage": 2}}'
)
_CHECKPOINT = checkpoint_from_names(
    ["mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt"],
    tag="global_step5",
    state={"train_batch_size": 8, "max_steps": 1000, "global_step": 5},
)

BAD = (
    Example(
        config=_CONFIG,
        launch=Launch(
            world_size=1,
            checkpoint=_CHECKPOINT,
            hf_arguments=TrainingArguments.of({"per_device_train_batch_size": 4, "max_steps": 2000}),
        ),
        reports=(
            Report(
                at="scheduler.params.total_num_steps",
                message="max_steps is 2000 (--hf-args), but was 1000 when checkpoint was saved, so the learning rate"
                " continues on another curve",
            ),
            Report(
                at="train_micro_batch_size_per_gpu",
                message="train_micro_batch_size_per_gpu is 4 (line 1, from per_device_train_batch_size of --hf-args),"
                " but was 8 when checkpoint was saved, so Trainer continues at another place of the data",
            ),
        ),
        deepspeed=None,
    ),
)

GOOD = (
    Example(
        config=_CONFIG,
        launch=Launch(
            world_size=1,
            checkpoint=_CHECKPOINT,
            hf_arguments=TrainingArguments.of({"per_device_train_batch_size": 8, "max_steps": 1000}),
        ),
        deepspeed=None,
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    checkpoint = context.launch.checkpoint
    if checkpoint is None:
        return
    saved, now = checkpoint.micro_batch_size, context.values.get(MICRO_BATCH)
    if saved is not None and type(now) is int and now != saved:
        yield Finding(
            at=(MICRO_BATCH,),
            message=f"{MICRO_BATCH} is {shown(now)} ({context.line(MICRO_BATCH)}), but was {shown(saved)} when"
            f" {checkpoint.folder} was saved, so Trainer continues at another place of the data",
            help=f"continue with {shown(saved)}",
        )
    arguments = context.launch.hf_arguments
    steps = None if arguments is None or not arguments.is_known("max_steps") else arguments["max_steps"]
    if arguments is not None and checkpoint.max_steps is not None and steps is not None and steps > 0:
        if steps == checkpoint.max_steps:
            return
        yield Finding(
            at=("scheduler", "params", "total_num_steps"),
            severity=Severity.INFO,
            message=f"max_steps is {shown(steps)} ({arguments.origin('max_steps')}), but was"
            f" {shown(checkpoint.max_steps)} when {checkpoint.folder} was saved, so the learning rate continues on"
            " another curve",
            help=f"continue with {shown(checkpoint.max_steps)} to keep the curve",
        )


RULE = Rule(
    code="DSA855",
    name="resumed-with-other-batch",
    summary="a checkpoint of Trainer's is continued with another batch, or for another number of steps",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    proof=Proof.READ,
    check=check,
    bad=BAD,
    good=GOOD,
)
