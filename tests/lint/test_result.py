"""Counting what was found, and for which worlds."""

from __future__ import annotations

from ds_accum.config.document import read_text
from ds_accum.config.launch import Launch
from ds_accum.lint.diagnostic import Severity
from ds_accum.lint.result import LintResult, judge
from ds_accum.lint.targets import Target

LAUNCHES = [Launch(world_size=size) for size in (8, 2)]


def result_of(*texts: str) -> LintResult:
    files = tuple(judge(Target(document=read_text(text)), LAUNCHES) for text in texts)
    return LintResult(files=files, version=(0, 19, 8), version_source="given")


def test_a_file_knows_what_it_was_judged_for_and_what_was_found() -> None:
    (file,) = result_of('{"train_batch_size": "8"}').files
    assert file.world_sizes == (2, 8)
    assert [diagnostic.code for diagnostic in file.diagnostics] == ["DSA104"]


def test_findings_are_counted_over_all_files() -> None:
    result = result_of('{"train_batch_size": "8"}', '{"train_batch_size": 8}', "[]")
    assert result.count(Severity.ERROR) == len(result.diagnostics) == 2
    assert (result.count(Severity.WARNING), result.world_sizes) == (0, (2, 8))


def test_a_result_reaches_what_its_worst_finding_is() -> None:
    duplicate = '{"train_batch_size": 8, "train_batch_size": 8}'
    warned = judge(Target(document=read_text(duplicate)), [Launch(framework="huggingface")])
    result = LintResult(files=(warned,), version=(0, 19, 8), version_source="given")
    assert [result.reaches(severity) for severity in Severity] == [False, True, True]
    assert not result_of('{"train_batch_size": 8}').reaches(Severity.INFO)
