"""What the full report says besides the golden file: the summary, and for whom which remark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ds_accum.config.launch import Launch
from ds_accum.lint.diagnostic import Severity, When
from ds_accum.lint.reporters.full import diagnostic_lines, report, summary
from ds_accum.lint.reporters.terminal import Terminal
from ds_accum.lint.result import LintResult

TERMINAL = Terminal()


def for_worlds(result: LintResult, *sizes: int | None) -> LintResult:
    """The clean file of the result alone, judged for these world sizes."""
    launches = tuple(Launch(world_size=size) for size in sizes)
    return replace(result, files=(replace(result.files[-1], launches=launches),))


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ((None,), ", world size not given"),
        ((8,), " at world size 8"),
        ((2, 1, 3), " at world sizes 1, 2, 3"),
        ((1, 2, 3, 4), " at world sizes 1-4"),
        ((1, 8, 9, 10, 11, 12, 64, 65), " at world sizes 1, 8-12, 64, 65"),
    ],
)
def test_the_summary_names_the_release_and_the_worlds(result: LintResult, sizes: tuple[int, ...], said: str) -> None:
    expected = f"nothing found in 1 file, for DeepSpeed 0.19.8 (installed){said}"
    assert " ".join(summary(for_worlds(result, *sizes), TERMINAL)) == expected


def test_the_summary_says_for_how_many_files_no_world_was_given(result: LintResult) -> None:
    with_world, without = for_worlds(result, 8).files[0], for_worlds(result, None).files[0]
    said = " ".join(summary(replace(result, files=(with_world, without, without)), TERMINAL))
    assert said.endswith(" at world size 8 (not given for 2 files)")


def test_nothing_to_lint_is_no_report(result: LintResult) -> None:
    assert list(report(replace(result, files=()), TERMINAL)) == []


@pytest.mark.parametrize(
    ("version", "note"),
    [
        ((99, 0, 0), "note: DeepSpeed 99.0.0 is newer than the newest release known here; "),
        ((0, 1, 0), "note: DeepSpeed 0.1.0 is older than the oldest release known here; "),
        ((0, 19, 8), None),
    ],
)
def test_a_release_that_is_not_known_is_noted(result: LintResult, version: tuple[int, ...], note: str | None) -> None:
    lines = "".join(report(replace(for_worlds(result, 8), version=version), TERMINAL)).splitlines()
    if note is None:
        assert len(lines) == 1
    else:
        assert " ".join(lines[1:]).startswith(note)


@pytest.mark.parametrize(
    ("severity", "when", "note"),
    [
        (Severity.ERROR, When.LOAD, "DeepSpeed refuses this when it loads the config"),
        (Severity.ERROR, When.START, "DeepSpeed refuses this at start, once every rank is up"),
        (Severity.ERROR, When.FIRST_STEP, "DeepSpeed fails on this at the first step"),
        (Severity.ERROR, When.NEVER, "DeepSpeed never notices this"),
        (Severity.WARNING, When.START, "DeepSpeed may refuse this at start, once every rank is up"),
        (Severity.WARNING, When.NEVER, "DeepSpeed never notices this"),
        (Severity.INFO, When.NEVER, None),
    ],
)
def test_the_report_says_when_deepspeed_would_have_noticed(
    result: LintResult, severity: Severity, when: When, note: str | None
) -> None:
    file = result.files[0]
    diagnostic = replace(file.diagnostics[0], severity=severity, when=when, help=None, worlds=())
    lines = list(diagnostic_lines(diagnostic, file.document, file.world_sizes, TERMINAL))
    assert [line.partition("= note: ")[2] for line in lines if "= note: " in line] == ([note] if note else [])


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_sentences_and_excerpts_stay_within_the_terminal(result: LintResult, width: int) -> None:
    for file in result.files:
        for diagnostic in file.diagnostics:
            header, *lines = diagnostic_lines(diagnostic, file.document, file.world_sizes, Terminal(width=width))
            assert "[DSA" in header
            assert max(map(len, lines)) <= width


def test_the_counts_of_the_summary_are_painted_in_the_colours_of_their_severities(result: LintResult) -> None:
    first = next(summary(result, Terminal(color=True)))
    assert first.startswith(
        "\x1b[1;31m5 errors\x1b[0m, \x1b[1;33m3 warnings\x1b[0m, \x1b[1;36m2 infos\x1b[0m in 4 files, for "
    )
