"""`dynamic_batching` does nothing by itself.

The engine checks the block and never looks at it. Batches of a variable size come from
`get_dataloader_and_lr_scheduler_for_variable_batch_size_deepspeed`, a function that the script has to call on its
dataset; without it the micro-batches are those of the script's own loader.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, Severity, When
from ds_accum.lint.rule import Example, Report, Rule

_BLOCK = ("data_efficiency", "data_sampling", "dynamic_batching")

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "data_efficiency": {
    "enabled": true,
    "data_sampling": {"enabled": true, "dynamic_batching": {"enabled": true, "max_tokens": 4096}}
  }
}
""",
        reports=(
            Report(
                at="data_efficiency.data_sampling.dynamic_batching.enabled",
                message="the engine does not look at dynamic_batching: it is for a script that calls"
                " get_dataloader_and_lr_scheduler_for_variable_batch_size_deepspeed",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "data_efficiency": {"enabled": true, "data_sampling": {"dynamic_batching": {"enabled": false}}}
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    if "data_efficiency" not in context.values or _BLOCK[-1] not in context.block(".".join(_BLOCK[:-1])).block.keys:
        return
    block = context.block(".".join(_BLOCK))
    if block.present and block.get("enabled"):
        yield Finding(
            at=(*_BLOCK, "enabled"),
            message="the engine does not look at dynamic_batching: it is for a script that calls"
            " get_dataloader_and_lr_scheduler_for_variable_batch_size_deepspeed",
            help="call that function on the dataset, or remove the block",
        )


RULE = Rule(
    code="DSA562",
    name="dynamic-batching-unused",
    summary="dynamic_batching is on, and only a function that the script calls looks at it",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.INFO,
    proof=Proof.READ,
    check=check,
    bad=BAD,
    good=GOOD,
)
