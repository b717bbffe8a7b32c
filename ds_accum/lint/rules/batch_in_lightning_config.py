"""A config for Lightning brings an accumulation or a global batch size of its own.

Lightning's Trainer owns the accumulation: it writes `accumulate_grad_batches` into the config, and raises a
`MisconfigurationException` where the key is there already. The micro batch it takes from the data loader where the
config has none. `train_batch_size` it leaves alone, so that one must be what Lightning's numbers multiply to on these
very ranks, else DeepSpeed refuses it. Without both keys the config is right on any number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.config.resolve import ACCUMULATION, GLOBAL_BATCH
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, Severity, When
from ds_accum.lint.fix import Fix, RemoveKey
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 256,
  "train_micro_batch_size_per_gpu": 16,
  "gradient_accumulation_steps": 2,
  "zero_optimization": {"stage": 2}
}
""",
        launch=Launch(world_size=8, framework="lightning"),
        reports=(
            Report(
                at="train_batch_size",
                message="train_batch_size 256 must be what the data loader, accumulate_grad_batches and the ranks"
                " multiply to, as Lightning does not adapt it",
            ),
            Report(
                at="gradient_accumulation_steps",
                message="gradient_accumulation_steps is set, and Lightning won't start with it",
            ),
        ),
        deepspeed=None,
        fixed="""{
  "train_micro_batch_size_per_gpu": 16,
  "zero_optimization": {"stage": 2}
}
""",
    ),
)

GOOD = (
    Example(
        config='{"train_micro_batch_size_per_gpu": 16, "zero_optimization": {"stage": 2}}',
        launch=Launch(framework="lightning"),
        deepspeed=None,
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    if context.launch.framework != "lightning":
        return
    if context.values.get(GLOBAL_BATCH) is not None:
        yield Finding(
            at=(GLOBAL_BATCH,),
            severity=Severity.INFO,
            message=f"{GLOBAL_BATCH} {shown(context.values[GLOBAL_BATCH])} must be what the data loader,"
            " accumulate_grad_batches and the ranks multiply to, as Lightning does not adapt it",
            help="remove it, and DeepSpeed derives it",
            fix=Fix(title=f"remove {GLOBAL_BATCH}", changes=(RemoveKey((GLOBAL_BATCH,)),), is_safe=False),
        )
    if ACCUMULATION in context.values:
        yield Finding(
            at=(ACCUMULATION,),
            on_key=True,
            message=f"{ACCUMULATION} is set, and Lightning won't start with it",
            help="remove it, and give Trainer accumulate_grad_batches",
            fix=Fix(title=f"remove {ACCUMULATION}", changes=(RemoveKey((ACCUMULATION,)),), is_safe=False),
        )


RULE = Rule(
    code="DSA820",
    name="batch-in-lightning-config",
    summary="a config for Lightning has a batch size that Lightning owns",
    rationale=__doc__,
    when=When.START,
    severity=Severity.WARNING,
    proof=Proof.READ,
    check=check,
    bad=BAD,
    good=GOOD,
)
