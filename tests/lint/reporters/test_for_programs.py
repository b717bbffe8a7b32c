"""The reports that other programs read, read back as those programs do."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jsonschema
import pytest

from ds_accum.config.wording import printable
from ds_accum.lint.diagnostic import Severity
from ds_accum.lint.reporters import Terminal, reporter_of
from ds_accum.lint.result import LintResult


def text_of(result: LintResult, format_name: str) -> str:
    return "".join(reporter_of(format_name)(result, Terminal()))


# --------------------------------------------------------------------------------------------------------------- GitHub


def unescaped(text: str) -> str:
    for code, character in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
        text = text.replace(code, character)
    return text


def commands_of(log: str) -> list[tuple[str, dict[str, str], str]]:
    """What a runner of GitHub Actions makes of a log (ActionCommand.TryParseV2 of actions/runner)."""
    commands = []
    for line in re.split(r"\r\n|\n|\r", log):
        if not line.lstrip().startswith("::") or "::" not in line[2:]:
            continue
        head, message = line.lstrip()[2:].split("::", 1)
        command, _, properties = head.partition(" ")
        pairs = (pair.partition("=") for pair in properties.split(","))
        commands.append((command, {name.strip(): unescaped(value) for name, _, value in pairs}, unescaped(message)))
    return commands


def test_a_runner_of_github_reads_exactly_one_command_for_each_finding(result: LintResult) -> None:
    commands = commands_of(text_of(result, "github"))
    assert len(commands) == len(result.diagnostics)
    for (command, properties, message), item in zip(commands, result.diagnostics, strict=True):
        assert command == {"error": "error", "warning": "warning", "info": "notice"}[item.severity.value]
        assert properties["file"] == printable(item.filename)
        assert properties["title"] == f"{item.code} {item.name}"
        assert (properties["line"], properties["endLine"]) == (str(item.start.line), str(item.end.line))
        assert message.split("\nhelp: ") == [printable(text) for text in (item.message, item.help) if text is not None]


@pytest.mark.parametrize("format_name", ["full", "concise", "statistics"])
def test_a_runner_of_github_sees_no_command_in_any_other_text(result: LintResult, format_name: str) -> None:
    for width in range(20, 120):
        text = "".join(reporter_of(format_name)(result, Terminal(width=width)))
        assert commands_of(text) == [] and "##[" not in text


def test_github_gets_no_columns_for_a_span_over_several_lines(result: LintResult) -> None:
    commands = commands_of(text_of(result, "github"))
    assert (commands[0][1]["col"], commands[0][1]["endColumn"]) == ("23", "25")
    assert commands[1][1]["endLine"] == "5" and "col" not in commands[1][1]


# --------------------------------------------------------------------------------------------------------------- GitLab


def test_gitlab_gets_every_required_field_and_no_fingerprint_twice(result: LintResult) -> None:
    issues = json.loads(text_of(result, "gitlab"))
    assert [issue["check_name"] for issue in issues] == [item.code for item in result.diagnostics]
    assert {issue["severity"] for issue in issues} == {"critical", "minor", "info"}
    assert len({issue["fingerprint"] for issue in issues}) == len(issues)
    for issue, item in zip(issues, result.diagnostics, strict=True):
        assert issue["description"].startswith(printable(item.message))
        assert issue["location"]["path"] == item.filename
        assert issue["location"]["lines"] == {"begin": item.start.line, "end": item.end.line}


def test_clean_files_are_an_empty_list_for_gitlab(result: LintResult) -> None:
    assert json.loads(text_of(replace(result, files=result.files[-1:]), "gitlab")) == []


# ---------------------------------------------------------------------------------------------------------------- JUnit


def test_an_xml_reader_sees_each_finding_as_one_case_with_its_sentence(result: LintResult) -> None:
    root = ElementTree.fromstring(text_of(result, "junit"))
    suites = root.findall("testsuite")
    assert [suite.get("name") for suite in suites] == [printable(file.document.filename) for file in result.files]
    for suite, file in zip(suites, result.files, strict=True):
        cases = suite.findall("testcase")
        assert suite.get("tests") == str(len(cases)) == str(max(len(file.diagnostics), 1))
        for case, item in zip(cases, file.diagnostics, strict=False):
            (outcome,) = case
            said = outcome.get("message") or outcome.text
            assert said is not None and printable(item.message) in said
            assert case.get("name") == f"{item.code} {item.name} ({item.start.line}:{item.start.column})"
    totals = {name: sum(int(suite.get(name, 0)) for suite in suites) for name in ("tests", "failures", "errors")}
    assert {name: int(root.get(name, 0)) for name in totals} == totals


@pytest.mark.parametrize(
    ("fail_on", "failures"), [(Severity.ERROR, 4), (Severity.WARNING, 7), (Severity.INFO, 9), (None, 0)]
)
def test_a_junit_failure_is_what_makes_the_linter_fail(
    result: LintResult, fail_on: Severity | None, failures: int
) -> None:
    files = tuple(replace(file, fail_on=fail_on) for file in result.files)
    root = ElementTree.fromstring(text_of(replace(result, files=files), "junit"))
    assert len(root.findall(".//failure")) == failures
    assert len(root.findall(".//error")) == 1


# ---------------------------------------------------------------------------------------------------------------- SARIF


@pytest.fixture(scope="module")
def schema(repository: Path) -> Any:
    return json.loads((repository / "tests/data/schemas/sarif-schema-2.1.0.json").read_text(encoding="utf-8"))


def test_the_sarif_log_is_valid_by_the_official_schema(result: LintResult, schema: Any) -> None:
    checker = jsonschema.Draft4Validator.FORMAT_CHECKER
    validator = jsonschema.Draft4Validator(schema, format_checker=checker)
    log = json.loads(text_of(result, "sarif"))
    assert list(validator.iter_errors(log)) == []
    assert list(validator.iter_errors(json.loads(text_of(replace(result, files=()), "sarif")))) == []
    log["runs"][0]["results"][0]["level"] = "info"
    assert len(list(validator.iter_errors(log))) == 1


def applied(text: str, replacements: list[dict[str, Any]]) -> str:
    """A text after the replacements of a SARIF fix, which count lines and columns."""
    lines = text.splitlines(keepends=True)

    def offset(line: int, column: int) -> int:
        return sum(map(len, lines[: line - 1])) + column - 1

    for replacement in sorted(replacements, key=lambda item: -item["deletedRegion"]["startLine"]):
        region = replacement["deletedRegion"]
        start, end = offset(region["startLine"], region["startColumn"]), offset(region["endLine"], region["endColumn"])
        text = text[:start] + replacement["insertedContent"]["text"] + text[end:]
    return text


def test_a_sarif_viewer_finds_the_rule_the_place_and_the_fix(result: LintResult) -> None:
    (run,) = json.loads(text_of(result, "sarif"))["runs"]
    rules = run["tool"]["driver"]["rules"]
    for found, item in zip(run["results"], result.diagnostics, strict=True):
        assert rules[found["ruleIndex"]]["id"] == found["ruleId"] == item.code
        region = found["locations"][0]["physicalLocation"]["region"]
        assert (region["startLine"], region["startColumn"]) == item.start[:2]
        assert (region["endLine"], region["endColumn"]) == item.end[:2]
        location = found["locations"][0]["physicalLocation"]["artifactLocation"]
        assert location["uriBaseId"] in run["originalUriBaseIds"]
        assert unquote(location["uri"]) == item.filename and not re.search(r"[\x00-\x20<>,:]", location["uri"])
    (rule,) = (rule for rule in rules if rule["id"] == "DSA101")
    assert rule["helpUri"].startswith("https://")
    assert rule["fullDescription"]["text"] == "The batch sizes of the file contradict each other."
    (change,) = run["results"][0]["fixes"][0]["artifactChanges"]
    text = result.files[0].document.text
    assert applied(text, change["replacements"]) == text.replace("256", "8")


def test_no_key_of_a_config_becomes_a_link_in_a_sarif_viewer(result: LintResult) -> None:
    results = json.loads(text_of(result, "sarif"))["runs"][0]["results"]
    texts = [found["message"]["text"] for found in results]
    assert any("example.org" in text for text in texts)
    assert [text for text in texts if re.search(r"(?<!\\)\[[^\[\]]*(?<!\\)\]\(", text)] == []


def test_a_rule_that_failed_is_an_execution_that_failed(result: LintResult) -> None:
    assert json.loads(text_of(result, "sarif"))["runs"][0]["invocations"] == [{"executionSuccessful": False}]
    clean = replace(result, files=result.files[-1:])
    assert json.loads(text_of(clean, "sarif"))["runs"][0]["invocations"] == [{"executionSuccessful": True}]


# ------------------------------------------------------------------------------------------------------------ all alike


@pytest.mark.parametrize("format_name", ["sarif", "github", "gitlab", "junit"])
def test_a_file_below_the_working_directory_is_named_from_there(
    result: LintResult, format_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = result.files[0]
    for name, shown in (
        (f"{tmp_path}/conf/a.json", "conf/a.json"),
        ("./conf/../a.json", "a.json"),
        ("/elsewhere/a.json", "/elsewhere/a.json"),
    ):
        document = replace(first.document, filename=name)
        items = tuple(replace(item, filename=name) for item in first.diagnostics)
        file = replace(first, document=document, diagnostics=items)
        text = text_of(replace(result, files=(file,)), format_name)
        assert f"{shown}" in text and f"{tmp_path}" not in text
