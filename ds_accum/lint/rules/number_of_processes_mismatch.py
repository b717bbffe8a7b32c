"""An Accelerate YAML starts another number of ranks than the launch is said to have.

`accelerate launch` starts `num_processes` ranks, over all machines together, unless its command line says otherwise. A
batch that was worked out for another number does not add up there.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.embedded import number_of_processes
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, Severity, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import number

_CONFIG = '{"distributed_type": "DEEPSPEED", "num_processes": 8, "deepspeed_config": {"zero_stage": 2}}'

BAD = (
    Example(
        config=_CONFIG,
        launch=Launch(world_size=16),
        reports=(
            Report(
                at="num_processes",
                message="num_processes is 8, but the launch has 16 ranks, unless `accelerate launch` is given"
                " --num_processes",
            ),
        ),
        deepspeed=None,
    ),
)

GOOD = (Example(config=_CONFIG, launch=Launch(world_size=8), deepspeed=None),)


def check(context: LintContext) -> Iterator[Finding]:
    processes, ranks = number_of_processes(context.document), context.launch.world_size
    if processes is not None and ranks is not None and processes != ranks:
        yield Finding(
            at=("num_processes",),
            message=f"num_processes is {number(processes)}, but the launch has {number(ranks)}"
            f" {'rank' if ranks == 1 else 'ranks'}",
            help=f"write {number(ranks)}, or leave out --world-size",
            depends_on="unless `accelerate launch` is given --num_processes",
        )


RULE = Rule(
    code="DSA833",
    name="number-of-processes-mismatch",
    summary="num_processes of an Accelerate YAML is not the world size of the launch",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    proof=Proof.READ,
    needs="document",
    check=check,
    bad=BAD,
    good=GOOD,
)
