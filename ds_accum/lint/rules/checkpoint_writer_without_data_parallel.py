"""A checkpoint writer does not say which ranks write, and DeepSpeed asks for them in a place that does not exist.

`checkpoint.writer` replaces torch.save. Without `data_parallel`, only the first data parallel rank shall write;
DeepSpeed looks its number up in the model parallel unit (`mpu`) that the script passes, or that a pipeline module
brings. Without one it reads a field that its own class does not have, and no rank starts: "'UniversalParallelInfo'
object has no attribute 'dp_rank'". ZeRO-3 does not ask, because there every rank writes its own part.

The writer also needs CROSS_SIZE and CROSS_RANK in the environment, which the launcher `deepspeed` sets and `torchrun`
does not.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import zero_stage

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 1},
  "checkpoint": {"writer": {"type": "python"}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="checkpoint.writer",
                message="checkpoint.writer has no data_parallel, and at ZeRO stage 1 (line 4) DeepSpeed then asks an"
                " mpu which rank writes, unless the script passes an mpu or its model has experts",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 1},
  "checkpoint": {"writer": {"type": "python", "data_parallel": "replica"}}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 1},
  "checkpoint": {"writer": {"type": "python", "data_parallel": "replica"}}
}
"""
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 3},
  "checkpoint": {"writer": {"type": "python"}}
}
"""
    ),
)

_WRITER = ("checkpoint", "writer")


def check(context: LintContext) -> Iterator[Finding]:
    checkpoint, writer, stage = (
        context.block("checkpoint"),
        context.block("checkpoint.writer"),
        context.config.zero_stage,
    )
    if not writer.present or not writer.is_mapping or "writer" not in checkpoint.block.keys:
        return
    launch = context.launch
    if writer.get("data_parallel") is not None or stage in (3, None):
        return
    if launch.model_parallel_size > 1 or launch.expert_parallel_size > 1:
        return  # with an mpu, which knows
    yield Finding(
        at=_WRITER,
        on_key=True,
        message=f"checkpoint.writer has no data_parallel, and at {zero_stage(context)} DeepSpeed then asks an mpu which"
        " rank writes",
        help='add "data_parallel": "replica" to it, so that all ranks write, or remove the writer',
        depends_on="unless the script passes an mpu or its model has experts",
        fix=Fix(
            title="let every data parallel rank write a part",
            changes=(SetValue((*_WRITER, "data_parallel"), "replica"),),
            is_safe=False,
        ),
    )


RULE = Rule(
    code="DSA015",
    name="checkpoint-writer-without-data-parallel",
    summary="a checkpoint writer does not say which ranks write, and no mpu knows",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
