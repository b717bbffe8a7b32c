"""Known findings: what makes one the same, and what the file looks like."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from ds_accum.config.document import read_text
from ds_accum.config.launch import Launch
from ds_accum.errors import UsageError
from ds_accum.lint.baseline import baseline_text, read_baseline
from ds_accum.lint.result import FileResult, judge
from ds_accum.lint.rules import RULES
from ds_accum.lint.targets import Target

CODES = {rule.code for rule in RULES}
TEXT = """{
  "train_batch_size": 100, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
  "zero_optimization": {"stage": 2, "overlap_com": true, "overlap_con": 1}
}
"""


def result_of(text: str, filename: str = "conf/ds.json", world_size: int = 8) -> FileResult:
    return judge(Target(document=read_text(text, filename=filename)), [Launch(world_size=world_size)])


def left(known: FileResult, now: FileResult, codes: Iterable[str] = CODES) -> tuple[list[str], list[str]]:
    """The codes of `now` that a baseline of `known` does not know, and those that it knows in vain."""
    text, _ = baseline_text([known], "baseline.json")
    Path("baseline.json").write_text(text, encoding="utf-8")
    baseline = read_baseline("baseline.json")
    new = [item.code for item in baseline.without_known(now, codes).diagnostics]
    return new, [item.code for item in baseline.stale()]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "ds.json").touch()
    return tmp_path


def test_what_is_known_counts_as_suppressed() -> None:
    result = result_of(TEXT)
    assert [item.code for item in result.diagnostics] == ["DSA102", "DSA701", "DSA701"]
    assert left(result, result) == ([], [])
    baseline = read_baseline("baseline.json")
    assert baseline.without_known(result, CODES).suppressed == result.diagnostics


@pytest.mark.parametrize(
    "changed",
    [
        "\n\n// moved\n" + TEXT,
        TEXT.replace("\n  ", " "),
        TEXT.replace('"train_batch_size": 100,', '"steps_per_print": 10,\n  "train_batch_size":   100,'),
        TEXT.replace('{"stage": 2,', '{"stage": 1,'),
    ],
)
def test_a_finding_stays_the_same_when_other_lines_change(changed: str) -> None:
    assert left(result_of(TEXT), result_of(changed)) == ([], [])


def test_a_finding_stays_the_same_when_its_numbers_change_with_the_launch() -> None:
    assert left(result_of(TEXT), result_of(TEXT, world_size=16)) == ([], [])


def test_another_wrong_value_is_another_finding() -> None:
    assert left(result_of(TEXT), result_of(TEXT.replace("100", "101"))) == (["DSA102"], ["DSA102"])


def test_what_is_mended_is_stale_if_it_was_looked_for() -> None:
    mended = result_of(TEXT.replace("100", "104"))
    assert left(result_of(TEXT), mended) == ([], ["DSA102"])
    assert left(result_of(TEXT), mended, CODES - {"DSA102"}) == ([], [])


def test_what_is_known_of_a_file_that_was_not_linted_is_not_stale_unless_it_is_gone() -> None:
    other = result_of('{"train_micro_batch_size_per_gpu": 8, "gradient_clipping": 1.0}', "conf/other.json")
    assert left(result_of(TEXT), other) == ([], [])
    Path("conf/ds.json").unlink()
    assert left(result_of(TEXT), other)[1] == ["DSA102", "DSA701", "DSA701"]


def test_the_file_is_sorted_a_finding_a_line_and_speaks_of_files_from_its_own_folder() -> None:
    results = [result_of(TEXT, "conf/z.json"), result_of(TEXT)]
    text, count = baseline_text(results, "conf/known.json")
    assert count == 6
    assert text == baseline_text(results[::-1], "conf/known.json")[0]
    values = json.loads(text)
    assert [item["file"] for item in values["findings"]] == ["ds.json"] * 3 + ["z.json"] * 3
    assert [item["path"] for item in values["findings"]][:2] == ["train_batch_size", "zero_optimization.overlap_com"]
    assert len(text.splitlines()) == 6 + 5
    assert json.loads(baseline_text([], "x")[0]) == {"version": 1, "findings": []}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "can't read the baseline known.json: no such file"),
        ("", "known.json is no baseline: "),
        ("[]", "known.json is no baseline that this release of ds-accum reads"),
        ('{"version": 2}', "known.json is no baseline that this release of ds-accum reads"),
        ('{"version": 1}', "known.json is no baseline: 'findings'"),
        ('{"version": 1, "findings": [{"file": 1}]}', "known.json is no baseline: file must be a string"),
        ('{"version": 1, "findings": 1}', "known.json is no baseline: "),
    ],
)
def test_what_is_no_baseline_is_one_error(text: str | None, sentence: str) -> None:
    if text is not None:
        Path("known.json").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        read_baseline("known.json")
    assert str(caught.value).startswith(sentence)
    assert caught.value.remedy == "write it with --write-baseline"
