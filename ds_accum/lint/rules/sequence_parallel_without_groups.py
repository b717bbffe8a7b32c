"""`sequence_parallel_size` in the config divides the batch, and nothing else.

Alone in the config it only divides the world in the batch arithmetic. No group of sequence parallel ranks is formed:
every rank still reads its own samples, and gradients are averaged over all of them. DeepSpeed reports a global batch
that is `sequence_parallel_size` times too small, and a number that does not divide the world makes fractions of ranks.
The groups come from an `mpu` that the script passes (the key is then not read), or from AutoSP.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.config.resolve import BatchFault
from ds_accum.config.schema import checks_value
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, RemoveKey
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import number

_KEY = "sequence_parallel_size"

BAD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_clipping": 1.0,
  "sequence_parallel_size": 2,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
        launch=Launch(world_size=2, client_optimizer=False),
        reports=(
            Report(
                at="sequence_parallel_size",
                message="sequence_parallel_size 2 forms no groups: the batch is computed for 1 of 2 ranks, but each"
                " reads its own samples, and an optimizer step sees 2 times as many, unless the script passes an mpu",
            ),
        ),
        fixed="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
    ),
    Example(
        config='{"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0, "sequence_parallel_size": 3}',
        launch=Launch(world_size=8),
        reports=(
            Report(
                at="sequence_parallel_size",
                message="sequence_parallel_size 3 forms no groups: the batch is computed for 2.66667 of 8 ranks, but"
                " each reads its own samples, and an optimizer step sees 3 times as many, unless the script passes an"
                " mpu",
            ),
        ),
        fixed='{"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0}',
    ),
)

GOOD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
        launch=Launch(world_size=2, client_optimizer=False),
    ),
    # The script's own layout decides.
    Example(
        config='{"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0, "sequence_parallel_size": 2}',
        launch=Launch(world_size=8, sequence_parallel_size=2),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    size, launch = context.values.get(_KEY), context.launch
    if type(size) is not int or size < 2 or launch.model_parallel_size > 1 or "data_parallel_size" in context.values:
        return
    if _KEY not in context.config.top.block.keys or not checks_value(context.version, "", _KEY):
        return
    passes = context.block("compile").get("passes")
    if context.batch.fault is BatchFault.FRACTION or (isinstance(passes, list) and "autosp" in passes):
        return
    counted = context.batch.data_parallel.size
    ranks = (
        f"1 of {number(size)} ranks"
        if launch.world_size is None or counted is None
        else f"{number(counted)} of {number(launch.world_size)} ranks"
    )
    yield Finding(
        at=(_KEY,),
        message=f"{_KEY} {number(size)} forms no groups: the batch is computed for {ranks}, but each reads its own"
        f" samples, and an optimizer step sees {number(size)} times as many",
        help="pass an mpu with sequence parallel groups to deepspeed.initialize, or remove the key",
        depends_on="unless the script passes an mpu",
        fix=Fix(f"remove {_KEY}", (RemoveKey((_KEY,)),)),
    )


RULE = Rule(
    code="DSA606",
    name="sequence-parallel-without-groups",
    summary="sequence_parallel_size divides the batch, but forms no sequence parallel groups",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
)
