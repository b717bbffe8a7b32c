"""The config's `sequence_parallel_size` is not read, because the script's layout decides.

Where the script passes an `mpu`, DeepSpeed asks that for the data parallel size and never looks at the key. A number
that differs from the script's is a wrong note in the config: changing it changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, Severity, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

_KEY = "sequence_parallel_size"

BAD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_clipping": 1.0,
  "sequence_parallel_size": 4
}
""",
        launch=Launch(world_size=8, sequence_parallel_size=2),
        reports=(
            Report(
                at="sequence_parallel_size",
                message="sequence_parallel_size 4 is not read: the script's layout has a sequence parallel size of 2",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_clipping": 1.0,
  "sequence_parallel_size": 2
}
""",
        launch=Launch(world_size=8, sequence_parallel_size=2),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    launch, known = context.launch, context.config.top.block.keys
    if _KEY not in context.values or _KEY not in known or launch.model_parallel_size == 1:
        return
    size = context.values[_KEY]
    if size == launch.sequence_parallel_size:
        return
    yield Finding(
        at=(_KEY,),
        message=f"{_KEY} {shown(size)} is not read: the script's layout has a sequence parallel size of"
        f" {launch.sequence_parallel_size}",
        help="remove it, or write the size of the script's layout",
    )


RULE = Rule(
    code="DSA609",
    name="ignored-sequence-parallel-size",
    summary="the script's layout decides, and the config's sequence_parallel_size says otherwise",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    proof=Proof.READ,
    check=check,
    bad=BAD,
    good=GOOD,
)
