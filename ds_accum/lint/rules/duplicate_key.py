"""A key is written twice in the same object.

DeepSpeed refuses such a file ("Duplicate keys in DeepSpeed config"), at any depth. Every other reader of JSON and YAML,
Hugging Face's included, keeps the last value without a word, so that the same file trains there with half of what it
says.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.document import ProblemKind, Syntax
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.document_problems import problems_of
from ds_accum.lint.rule import Example, Report, Rule

BAD = (
    Example(
        config='{\n  "train_batch_size": 8,\n  "fp16": {"enabled": false},\n  "train_batch_size": 16\n}\n',
        reports=(Report(at="train_batch_size", message='"train_batch_size" is written twice, first on line 2'),),
    ),
)

GOOD = (Example(config='{"train_batch_size": 8, "fp16": {"enabled": false}, "bf16": {"enabled": false}}'),)


def check(context: LintContext) -> Iterator[Finding]:
    document = context.document
    # DeepSpeed itself reads Hjson files only; what reads JSON strictly or YAML keeps the last value.
    # So does DeepSpeed itself for a config that it gets as base64.
    deepspeed_reads = (
        document.syntax is Syntax.HJSON
        and context.launch.framework not in ("huggingface", "accelerate")
        and not context.origin.is_base64
    )
    for problem in problems_of(context, ProblemKind.DUPLICATE_KEY):
        first = f", first on line {document.position(problem.related[0].start).line}" if problem.related else ""
        key = problem.path[-1] if problem.path else "a key"
        yield Finding(
            at=problem.path or (),
            span=problem.span,
            message=f'"{key}" is written twice{first}'
            if deepspeed_reads
            else f'"{key}" is written twice{first}, and only the last value counts',
            help="keep one of the two",
            severity=None if deepspeed_reads else Severity.WARNING,
            when=None if deepspeed_reads else When.NEVER,
        )


RULE = Rule(
    code="DSA002",
    name="duplicate-key",
    summary="a key is written twice in the same object",
    rationale=__doc__,
    when=When.LOAD,
    needs="document",
    check=check,
    bad=BAD,
    good=GOOD,
)
