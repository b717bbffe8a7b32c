"""Under sequence parallelism the same loss makes another gradient at ZeRO stage 3 than at the others.

At stages 0, 1 and 2 gradients are added up over the ranks of a sequence and averaged over data parallel ranks; the
reduce-scatter of stage 3 averages over all of them. With a sequence parallel size of 2 the loss of DeepSpeed's Ulysses
tutorial, which every rank gathers whole, makes twice the right gradient at stages 0 to 2 and the right one at stage 3;
a loss that is each rank's own share makes the right one at stages 0 to 2, and half of it at stage 3.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, Severity, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import zero_stage

BAD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_clipping": 1.0,
  "zero_optimization": {"stage": 3}
}
""",
        launch=Launch(world_size=8, sequence_parallel_size=2),
        reports=(
            Report(
                at="zero_optimization.stage",
                message="ZeRO stage 3 (line 4) averages gradients over the 2 ranks of a sequence, where stages 0 to 2"
                " add them up: the same loss makes 1/2 of their gradient",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config='{"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0, "zero_optimization": {"stage": 3}}',
        launch=Launch(world_size=8),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    size, zero = context.launch.sequence_parallel_size, context.block("zero_optimization")
    if size == 1 or context.config.zero_stage != 3 or not zero.get("reduce_scatter"):
        return
    yield Finding(
        at=("zero_optimization", "stage"),
        message=f"{zero_stage(context)} averages gradients over the {size} ranks of a sequence, where stages 0 to 2 add"
        f" them up: the same loss makes 1/{size} of their gradient",
        help="a loss that every rank has whole, as in DeepSpeed's Ulysses tutorial, is right here; multiply a loss that"
        f" is each rank's own share by {size}",
    )


RULE = Rule(
    code="DSA611",
    name="sequence-parallel-gradient-scale",
    summary="ZeRO stage 3 averages over sequence parallel ranks, where other stages add up",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.INFO,
    proof=Proof.READ,
    check=check,
    bad=BAD,
    good=GOOD,
)
