"""AutoTP's ranks are counted as if each had its own samples.

The three batch sizes are settled before AutoTP lays out its groups, with the whole world for the data parallel size.
But the ranks of a tensor parallel group must be given the same samples (DeepSpeed checks that in the first forward),
so an optimizer step sees `train_batch_size / autotp_size` of them. Nothing can be written that says so: the arithmetic
refuses the true number.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.config.resolve import GLOBAL_BATCH
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, Severity, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import number

BAD = (
    Example(
        config="""{
  "train_batch_size": 64,
  "train_micro_batch_size_per_gpu": 4,
  "gradient_clipping": 1.0,
  "tensor_parallel": {"autotp_size": 2}
}
""",
        launch=Launch(world_size=8),
        reports=(
            Report(
                at="train_batch_size",
                message="train_batch_size 64 counts every rank, but the 2 ranks of a tensor parallel group"
                " (autotp_size, line 5) read the same samples: an optimizer step sees 32",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config='{"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 1.0, "tensor_parallel": {"autotp_size": 2}}',
        launch=Launch(world_size=8),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    size = context.block("tensor_parallel").get("autotp_size")
    batch = context.batch.written.get(GLOBAL_BATCH)
    if type(size) is not int or size < 2 or type(batch) is not int or batch % size or context.has_filled_in_batch:
        return
    if context.batch.fault is not None or context.launch.model_parallel_size > 1:
        return
    yield Finding(
        at=(GLOBAL_BATCH,),
        message=f"{GLOBAL_BATCH} {number(batch)} counts every rank, but the {number(size)} ranks of a tensor parallel"
        f" group (autotp_size, {context.line('tensor_parallel', 'autotp_size')}) read the same samples: an optimizer"
        f" step sees {number(batch // size)}",
        help=f"for {number(batch)} samples, write {number(batch * size)} and multiply the accumulation by"
        f" {number(size)}",
    )


RULE = Rule(
    code="DSA612",
    name="batch-counts-tensor-parallel",
    summary="train_batch_size counts tensor parallel ranks, which share their samples",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.INFO,
    proof=Proof.READ,
    check=check,
    bad=BAD,
    good=GOOD,
)
