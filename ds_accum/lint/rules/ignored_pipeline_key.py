"""The `pipeline` block can't ask for a pipeline.

A model is pipelined because the script builds a `PipelineModule`, whose arguments say into how many stages, how it is
partitioned and whether layers are seeded one by one. `stages`, `partition` and `seed_layers` of the config are read
and never looked at again: with `"stages": 4` and a plain model every rank trains the whole of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, RemoveKey
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

ARGUMENTS = {"stages": "num_stages", "partition": "partition_method", "seed_layers": "seed_layers"}
"""The argument of PipelineModule that does what the key seems to do."""

BAD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "pipeline": {"stages": 4}
}
""",
        launch=Launch(world_size=2, pipeline_parallel_size=2, client_optimizer=False),
        reports=(
            Report(
                at="pipeline.stages",
                message="pipeline.stages 4 is never used: the script's PipelineModule says it, and this launch has 2"
                " stages",
            ),
        ),
        fixed="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "pipeline": {}
}
""",
    ),
    Example(
        config='{"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0, "pipeline": {"seed_layers": true}}',
        launch=Launch(world_size=2),
        reports=(
            Report(
                at="pipeline.seed_layers",
                message="pipeline.seed_layers true is never used: the script's PipelineModule says it",
            ),
        ),
        fixed='{"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0, "pipeline": {}}',
    ),
)

GOOD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_clipping": 1.0,
  "zero_optimization": {"stage": 1},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "pipeline": {"activation_checkpoint_interval": 1}
}
""",
        launch=Launch(world_size=2, pipeline_parallel_size=2, client_optimizer=False),
    ),
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_clipping": 1.0,
  "zero_optimization": {"stage": 1},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "pipeline": {"stages": 2, "partition": "best"}
}
""",
        launch=Launch(world_size=2, pipeline_parallel_size=2, client_optimizer=False),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    block, stages = context.block("pipeline"), context.launch.pipeline_parallel_size
    if not block.present or not block.is_mapping:
        return
    for key, argument in ARGUMENTS.items():
        if key not in block.raw or key not in block.block.keys:
            continue
        value = block.raw[key]
        if value == block.block.defaults.get(key) or (key == "stages" and value == stages and stages > 1):
            continue
        here = f", and this launch has {stages} stages" if key == "stages" and stages > 1 else ""
        yield Finding(
            at=("pipeline", key),
            message=f"pipeline.{key} {shown(value)} is never used: the script's PipelineModule says it{here}",
            help=f"pass {argument} to PipelineModule, and remove the key",
            fix=Fix(f"remove pipeline.{key}", (RemoveKey(("pipeline", key)),), is_safe=True),
        )


RULE = Rule(
    code="DSA614",
    name="ignored-pipeline-key",
    summary="a key of the pipeline block is read and never used",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
)
