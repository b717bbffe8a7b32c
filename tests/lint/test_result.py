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
    (file,) = result_of('{"train_micro_batch_size_per_gpu": "8", "gradient_clipping": 0}').files
    assert file.world_sizes == (2, 8)
    assert [diagnostic.code for diagnostic in file.diagnostics] == ["DSA104"]


def test_findings_are_counted_over_all_files() -> None:
    result = result_of(
        '{"train_micro_batch_size_per_gpu": "8", "gradient_clipping": 0}',
        '{"train_micro_batch_size_per_gpu": 8, "gradient_clipping": 0}',
        "[]",
    )
    assert result.count(Severity.ERROR) == len(result.diagnostics) == 2
    assert (result.count(Severity.WARNING), result.world_sizes) == (0, (2, 8))


def test_a_result_fails_on_what_is_at_least_as_bad_as_it_should_fail_on() -> None:
    document = read_text('{"train_batch_size": 8, "train_batch_size": 8}')
    launches = [Launch(framework="huggingface")]

    def fails(fail_on: Severity | None) -> bool:
        file = judge(Target(document=document), launches, fail_on=fail_on)
        return LintResult(files=(file,), version=(0, 19, 8), version_source="given").fails

    assert [fails(severity) for severity in (*Severity, None)] == [False, True, True, False]
    assert not result_of('{"train_micro_batch_size_per_gpu": 8, "gradient_clipping": 0}').fails


def test_what_does_not_fail_can_be_left_out_with_the_summary() -> None:
    result = result_of(
        '{"train_batch_size": 9, "gradient_accumulation_steps": 1, "gradient_clipping": 0}',
        '{"train_micro_batch_size_per_gpu": 8, "gradient_clipping": 0, "ds_accum": {"lint": {"ignore": {"X": "y"}}}}',
    )
    assert [item.code for item in result.diagnostics] == ["DSA102", "DSA021"]
    failing = result.only_failing()
    assert [item.code for item in failing.diagnostics] == ["DSA102"]
    assert (result.has_summary, failing.has_summary) == (True, False)
