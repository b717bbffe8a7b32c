"""A file that DeepSpeed could read, but that Hugging Face can't.

DeepSpeed reads configs with Hjson: comments, trailing commas and unquoted keys are fine there. Trainer and Accelerate
open the same file with Python's `json`, which refuses all of them before DeepSpeed is asked ("Expecting property name
enclosed in double quotes").
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.document import Syntax, read_text
from ds_accum.config.json_syntax import is_strict_json
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, When
from ds_accum.lint.rule import Example, Report, Rule

BAD = (
    Example(
        config='{\n  // two per GPU\n  "train_micro_batch_size_per_gpu": 2\n}\n',
        launch=Launch(framework="huggingface"),
        reports=(
            Report(
                at="",
                message="Hugging Face reads this file as strict JSON, which it is not: expected a key in double"
                " quotes, found '// two per GPU'",
            ),
        ),
        deepspeed=None,
    ),
)

GOOD = (
    Example(config='{\n  // two per GPU\n  "train_micro_batch_size_per_gpu": 2\n}\n', launch=Launch(framework="raw")),
    Example(config='{"train_micro_batch_size_per_gpu": 2}', launch=Launch(framework="huggingface")),
)


def check(context: LintContext) -> Iterator[Finding]:
    document = context.document
    if (
        context.launch.framework not in ("huggingface", "accelerate")
        or document.syntax is not Syntax.HJSON
        or document.problems
    ):
        return
    if is_strict_json(document.text):
        return
    strict = read_text(document.text, filename=document.filename, syntax=Syntax.JSON)
    for problem in strict.problems[:1]:
        yield Finding(
            at=problem.path or (),
            span=problem.span,
            message=f"Hugging Face reads this file as strict JSON, which it is not: {problem.message}",
            help="remove comments and trailing commas, and put keys and strings in double quotes",
        )


RULE = Rule(
    code="DSA801",
    name="not-strict-json",
    summary="a file for Hugging Face that only DeepSpeed's lenient reader understands",
    rationale=__doc__,
    when=When.LOAD,
    check=check,
    proof=Proof.OTHER_READER,
    bad=BAD,
    good=GOOD,
    noticed_by="Hugging Face",
)
