"""No input makes the linter fail, hang or point outside the text: thousands of new ones in every run.

DS_ACCUM_FUZZ is how many (20,000), DS_ACCUM_SEED the first seed (from the clock, and printed at the end); README.md says
how to look at one again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import NoReturn

import lint_fuzzed
import pytest
from click.testing import CliRunner
from fuzzed import FuzzedInput, bundled_samples, fuzz
from workers import first_seed, run_seeds

from ds_accum.config.launch import Launch
from ds_accum.lint.rules import RULES

COUNT = int(os.environ.get("DS_ACCUM_FUZZ", "20000"))
THROUGH_THE_COMMAND = 300
THROUGH_A_PROCESS = 12


def test_thousands_of_fuzzed_inputs_are_linted_without_a_failure_or_a_pause() -> None:
    first = first_seed()
    lines = run_seeds("lint_fuzzed.py", first, COUNT)
    found = [f"seed {line['seed']} ({line['kind']}): {line['problem']}" for line in lines if "seed" in line]
    assert not found, f"{len(found)} problems from seed {first} on\n\n" + "\n\n".join(found[:20])
    tallies = [line for line in lines if "linted" in line]
    assert sum(line["linted"] for line in tallies) == COUNT


@pytest.mark.parametrize("format_name", ["full", "concise", "json"])
def test_the_command_ends_with_a_verdict_whatever_it_is_given(format_name: str) -> None:
    from ds_accum.cli.main import cli

    inputs = lint_fuzzed.samples()
    first = first_seed()
    for seed in range(first, first + THROUGH_THE_COMMAND):
        item = fuzz(seed, inputs)
        result = CliRunner().invoke(
            cli, ["lint", "-", "--stdin-filename", item.filename, "--format", format_name], input=item.data
        )
        assert result.exit_code in (0, 1), f"seed {seed}: exit code {result.exit_code}\n{result.output[-2000:]}"


def test_a_process_of_its_own_prints_no_traceback() -> None:
    inputs = lint_fuzzed.samples()
    first = first_seed()
    for seed in range(first, first + THROUGH_A_PROCESS):
        finished = subprocess.run(
            [sys.executable, "-m", "ds_accum", "lint", "-"],
            input=fuzz(seed, inputs).data,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert finished.returncode in (0, 1), f"seed {seed}: {finished.stderr.decode('utf-8', 'replace')}"
        assert b"Traceback" not in finished.stdout + finished.stderr, f"seed {seed}"


def test_a_seed_always_gives_the_same_input() -> None:
    inputs = bundled_samples()
    assert [fuzz(seed, inputs) for seed in range(50)] == [fuzz(seed, inputs) for seed in range(50)]


def test_a_rule_that_fails_and_a_reader_that_raises_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> NoReturn:
        raise ZeroDivisionError("on purpose")

    item = FuzzedInput(kind="", data=b"{}", filename="x.json", launch=Launch())
    assert list(lint_fuzzed.problems_of(item)) == []
    assert any(
        "on purpose" in problem for problem in lint_fuzzed.problems_of(item, rules=[replace(RULES[0], check=fail)])
    )
    monkeypatch.setattr(lint_fuzzed, "read_bytes", fail)
    assert any("Traceback" in problem for problem in lint_fuzzed.problems_of(item))
