"""`activation_checkpointing` saves nothing under Trainer and Accelerate.

The block sets up `deepspeed.checkpointing`, which a model has to call itself, as Megatron's do. The engine never does,
nor do Trainer, Accelerate and the models of transformers, which use torch's own: the block changes nothing, and the
job runs out of memory as before. There it is `gradient_checkpointing` that saves the memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, Severity, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

_BLOCK = "activation_checkpointing"

BAD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto",
  "gradient_clipping": "auto",
  "activation_checkpointing": {"partition_activations": true, "cpu_checkpointing": true}
}
""",
        launch=Launch(framework="huggingface"),
        reports=(
            Report(
                at="activation_checkpointing",
                message="activation_checkpointing changes nothing: neither DeepSpeed's engine nor the Trainer looks at"
                " partition_activations true (line 5), unless the model calls deepspeed.checkpointing itself",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 2,
  "gradient_clipping": 1.0,
  "activation_checkpointing": {"partition_activations": true}
}
""",
        launch=Launch(world_size=1),
    ),
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto",
  "gradient_clipping": "auto",
  "activation_checkpointing": {"partition_activations": false}
}
""",
        launch=Launch(framework="huggingface"),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    block, framework = context.block(_BLOCK), context.launch.framework
    if framework not in ("huggingface", "accelerate") or not block.present or not block.is_mapping:
        return
    switched_on = [
        key for key in ("partition_activations", "cpu_checkpointing", "number_checkpoints") if block.get(key)
    ]
    if not switched_on:
        return
    key = switched_on[0]
    yield Finding(
        at=(_BLOCK,),
        on_key=True,
        message=f"{_BLOCK} changes nothing: neither DeepSpeed's engine nor"
        f" {'the Trainer' if framework == 'huggingface' else 'Accelerate'} looks at {key} {shown(block.get(key))}"
        f" ({context.line(_BLOCK, key)})",
        help="use gradient_checkpointing of the Trainer or of the model, and remove the block",
        depends_on="unless the model calls deepspeed.checkpointing itself",
    )


RULE = Rule(
    code="DSA563",
    name="activation-checkpointing-unused",
    summary="activation_checkpointing is set up, and nothing under Trainer or Accelerate looks at it",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    proof=Proof.READ,
    check=check,
    bad=BAD,
    good=GOOD,
)
