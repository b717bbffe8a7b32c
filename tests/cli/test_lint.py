"""`ds-accum lint` as a user calls it: what is linted, for which launch, how it is shown, and the exit code."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ds_accum.cli.lint import FAIL_ON, FORMATS
from ds_accum.lint import Severity
from ds_accum.lint.reporters import REPORTERS
from ds_accum.lint.rules import RULES

HUGGING_FACE = '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_clipping": 1.0}'
ACCELERATE = """distributed_type: DEEPSPEED
num_processes: 8
deepspeed_config:
  deepspeed_config_file: {}
"""


def codes(finished: Any) -> list[str]:
    """The codes of a concise report."""
    return [line.split(": ")[1].split(" ")[0] for line in finished.output.splitlines()]


def test_the_formats_and_severities_of_the_command_are_those_of_the_linter() -> None:
    assert tuple(REPORTERS) == (*FORMATS, "statistics")
    assert (*(severity.value for severity in Severity), "never") == FAIL_ON


# ---------------------------------------------------------------------------------------------------------- exit codes


def test_a_clean_file_is_one_short_line_and_exit_code_0(ds_accum: Any, good: Path) -> None:
    finished = ds_accum("lint", good, "--world-size", "8", "--deepspeed-version", "0.19.8")
    assert (finished.code, finished.errors) == (0, "")
    assert finished.output == "nothing found in 1 file, for DeepSpeed 0.19.8 (given) at world size 8\n"


def test_a_finding_is_shown_with_its_place_and_exit_code_1(ds_accum: Any, mismatch: Path) -> None:
    finished = ds_accum("lint", mismatch, "--world-size", "8")
    assert (finished.code, finished.errors) == (1, "")
    assert finished.output.startswith("ds_config.json:2:23: error[DSA101] batch-size-mismatch\n")


WARNING = '{"train_batch_size": 8, "gradient_clipping": 1.0, "train_batch_size": 8}'


@pytest.mark.parametrize(("fail_on", "code"), [("error", 0), ("warning", 1), ("info", 1), ("never", 0)])
def test_a_warning_fails_from_its_own_severity_on(ds_accum: Any, folder: Path, fail_on: str, code: int) -> None:
    (folder / "ds.json").write_text(WARNING, encoding="utf-8")
    finished = ds_accum("lint", "ds.json", "--framework", "hf", "--format", "concise", "--fail-on", fail_on)
    assert finished.code == code
    assert "DSA002 [warning]" in finished.output


def test_a_rule_that_fails_is_our_failure_and_the_others_still_run(
    ds_accum: Any, mismatch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> list[Any]:
        raise RuntimeError("it broke")

    rules = [replace(RULES.by_code["DSA001"], check=fail), RULES.by_code["DSA101"]]
    monkeypatch.setattr("ds_accum.lint.in_force.RULES", rules)
    finished = ds_accum("lint", mismatch, "--world-size", "8", "--fail-on", "never")
    assert finished.code == 2
    assert "error[DSA000] rule-failed\n  rule DSA001 (syntax-error) failed: RuntimeError: it broke" in finished.output
    assert "error[DSA101]" in finished.output
    assert "DeepSpeed never notices" not in finished.output


# ------------------------------------------------------------------------------------------------------ what is linted


def test_what_can_not_be_linted_is_said_and_the_rest_is_linted(ds_accum: Any, mismatch: Path, good: Path) -> None:
    finished = ds_accum("lint", "goood.json", mismatch, good, "--world-size", "8", "--format", "concise")
    assert finished.code == 2
    assert finished.errors == "error: there is no file or folder goood.json\nhelp: did you mean good.json?\n"
    assert codes(finished) == ["DSA101"]


def test_standard_input_is_linted_under_the_name_that_it_is_given(ds_accum: Any) -> None:
    text = "{train_batch_size: '8', gradient_clipping: 0}"
    finished = ds_accum("lint", "-", "--stdin-filename", "conf/ds.json", "--format", "concise", stdin=text)
    assert finished.output.startswith("conf/ds.json:1:20: DSA104 ")
    assert ds_accum("lint", "-", "--format", "concise", stdin=text).output.startswith("<stdin>:1:20: DSA104 ")


def test_the_name_of_standard_input_says_how_it_is_read(ds_accum: Any) -> None:
    text = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 9\n"
    finished = ds_accum("lint", "-", "--stdin-filename", "a.yaml", "--format", "concise", stdin=text)
    assert finished.code == 1
    assert finished.output.startswith("a.yaml:3:15: ")


def test_a_name_for_standard_input_that_is_not_read_is_a_mistake(ds_accum: Any, good: Path) -> None:
    finished = ds_accum("lint", good, "--stdin-filename", "ds.json")
    assert finished.code == 2
    assert "--stdin-filename names standard input" in finished.errors


def test_base64_is_linted_as_deepspeed_reads_it(ds_accum: Any, folder: Path) -> None:
    word = base64.urlsafe_b64encode(
        b'{"train_batch_size": 8, "train_batch_size": "9", "gradient_clipping": 0}'
    ).decode()
    finished = ds_accum("lint", word, "--format", "concise")
    assert finished.code == 1
    # In a file, DeepSpeed would refuse the key that is written twice; here it takes the last.
    assert finished.output.splitlines()[0].startswith('<base64>:1:25: DSA002 [warning] "train_batch_size" is written')
    assert codes(finished) == ["DSA002", "DSA104"]


def test_a_file_that_accelerate_launches_is_linted_for_its_processes(
    ds_accum: Any, folder: Path, mismatch: Path
) -> None:
    (folder / "accelerate.yaml").write_text(ACCELERATE.format("ds_config.json"), encoding="utf-8")
    finished = ds_accum("lint", "accelerate.yaml", "--deepspeed-version", "0.19.8")
    assert finished.code == 1
    assert finished.output.startswith("ds_config.json:2:23: error[DSA101]")
    assert "\n1 error in 2 files, for DeepSpeed 0.19.8 (given) at world size 8\n" in finished.output


def test_the_world_size_of_the_command_line_outweighs_that_of_accelerate(
    ds_accum: Any, folder: Path, mismatch: Path
) -> None:
    (folder / "accelerate.yaml").write_text(ACCELERATE.format("ds_config.json"), encoding="utf-8")
    assert ds_accum("lint", "accelerate.yaml", "--world-size", "16").code == 0


def test_degrees_that_do_not_fit_accelerates_processes_are_an_error_that_names_it(
    ds_accum: Any, folder: Path, mismatch: Path
) -> None:
    (folder / "accelerate.yaml").write_text(ACCELERATE.format("ds_config.json"), encoding="utf-8")
    finished = ds_accum("lint", "accelerate.yaml", "--tp", "3")
    assert finished.code == 2
    assert finished.errors.startswith(
        "error: num_processes in accelerate.yaml: world 8 is not a multiple of tensor 3 (remainder 2)"
    )


def test_a_file_that_accelerate_names_in_vain_is_a_finding_at_its_key(ds_accum: Any, folder: Path) -> None:
    (folder / "accelerate.yaml").write_text(ACCELERATE.format("no.json"), encoding="utf-8")
    finished = ds_accum("lint", "accelerate.yaml", "--format", "concise")
    assert finished.output == (
        'accelerate.yaml:4:26: DSA802 [warning] "no.json" is neither beside this file nor in a folder of the project'
        " above it\n"
    )


def test_a_file_outside_the_project_is_not_looked_at(ds_accum: Any, folder: Path) -> None:
    project = folder / "project"
    project.mkdir()
    (project / "setup.py").touch()
    (folder / "outside.json").write_text('{"train_batch_size": "secret"}', encoding="utf-8")
    (project / "accelerate.yaml").write_text(ACCELERATE.format("../outside.json"), encoding="utf-8")
    finished = ds_accum("lint", "project/accelerate.yaml", "--format", "concise")
    assert codes(finished) == ["DSA802"]
    assert "outside the project" in finished.output and "secret" not in finished.output


# ----------------------------------------------------------------------------------------------------- for which launch


def test_several_worlds_are_checked_each(ds_accum: Any, mismatch: Path) -> None:
    finished = ds_accum("lint", mismatch, "--world-size", "8,16,32-34")
    assert finished.code == 1
    assert "= note: at world sizes 8, 32, 33, 34 of 8, 16, 32, 33, 34\n" in finished.output
    assert " ".join(finished.output.split()).endswith("at world sizes 8, 16, 32, 33, 34")


@pytest.mark.parametrize(
    "options",
    [
        ["--world-size", "16"],
        ["--nodes", "2", "--gpus-per-node", "8"],
        ["--hostfile", "hosts"],
        ["--world-size", "32", "--tp", "2"],
        ["--world-size", "64", "--pp", "2", "--cp", "2"],
        ["--world-size", "32", "--sp", "2", "--ep", "4"],
    ],
)
def test_every_way_to_say_the_world_reaches_the_ledger(ds_accum: Any, mismatch: Path, options: list[str]) -> None:
    Path("hosts").write_text("a slots=8\nb slots=8\n", encoding="utf-8")
    assert ds_accum("lint", mismatch, *options).code == 0
    assert ds_accum("lint", mismatch, "--world-size", "8").code == 1


@pytest.mark.parametrize(
    ("options", "sentence", "remedy"),
    [
        (
            ["--world-size", "8", "--nodes", "2", "--gpus-per-node", "8"],
            "--world-size 8 contradicts --nodes 2 x --gpus-per-node 8 = 16",
            "give only one of them",
        ),
        (["--world-size", "8", "--tp", "3"], "world 8 is not a multiple of tensor 3 (remainder 2)", "launch 6 or 9"),
        (["--nodes", "2"], "--nodes says nothing without --gpus-per-node", "add --gpus-per-node"),
        (["--deepspeed-version", "new"], "--deepspeed-version: 'new' is not a DeepSpeed version such as 0.19.8", ""),
        (["--hostfile", "hosts"], "can't read hostfile hosts: no such file or directory", ""),
        (["--world-size", "8-4"], "invalid value for '--world-size': '8-4' ends before it begins", "--help"),
        (["--tp", "0"], "invalid value for '--tp': must be at least 1, not 0", "--help"),
    ],
)
def test_a_launch_that_can_not_be_is_an_error_with_its_numbers(
    ds_accum: Any, good: Path, options: list[str], sentence: str, remedy: str
) -> None:
    finished = ds_accum("lint", good, *options)
    assert (finished.code, finished.output) == (2, "")
    error, *help_ = finished.errors.splitlines()
    assert error.startswith(f"error: {sentence}")
    assert remedy in "".join(help_)


def test_a_release_newer_than_all_known_ones_is_noted(ds_accum: Any, good: Path) -> None:
    finished = ds_accum("lint", good, "--deepspeed-version", "99.1")
    assert finished.code == 0
    assert finished.output.splitlines()[0].startswith("nothing found in 1 file, for DeepSpeed 99.1.0 (given)")
    assert "note: DeepSpeed 99.1.0 is newer than the newest release known here" in finished.output


def test_the_framework_decides_what_auto_means(ds_accum: Any, folder: Path) -> None:
    (folder / "ds.json").write_text(HUGGING_FACE, encoding="utf-8")
    assert ds_accum("lint", "ds.json", "--framework", "hf").code == 0
    assert ds_accum("lint", "ds.json", "--framework", "raw").code == 1


# ------------------------------------------------------------------------------------------------------ how it is shown


def test_json_is_one_object_with_the_documented_fields(ds_accum: Any, mismatch: Path, good: Path) -> None:
    finished = ds_accum(
        "lint", mismatch, good, "--world-size", "8", "--format", "json", "--deepspeed-version", "0.19.8"
    )
    report = json.loads(finished.output)
    assert {**report, "diagnostics": len(report["diagnostics"])} == {
        "version": 1,
        "deepspeed_version": "0.19.8",
        "world_sizes": [8],
        "files": 2,
        "diagnostics": 1,
        "fixed": [],
    }


@pytest.mark.parametrize(
    ("options", "variables", "is_coloured"),
    [
        ([], {}, False),
        (["--color", "always"], {}, True),
        ([], {"FORCE_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (["--color", "never"], {"FORCE_COLOR": "1"}, False),
        (["--color", "always"], {"NO_COLOR": "1"}, True),
    ],
)
def test_colour_is_for_terminals_unless_somebody_asks(
    ds_accum: Any,
    mismatch: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    variables: dict[str, str],
    is_coloured: bool,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    finished = ds_accum("lint", mismatch, "missing.json", "--world-size", "8", *options)
    assert ("\x1b[" in finished.output) is is_coloured
    assert ("\x1b[" in finished.errors) is is_coloured


def test_the_options_accept_what_a_launch_can_hold() -> None:
    from ds_accum.cli import launch_options
    from ds_accum.config import launch

    # Written down twice, so that --help loads no layer below.
    for name in ("FRAMEWORKS", "FRAMEWORK_ALIASES", "ENGINES", "ACCELERATORS"):
        assert getattr(launch_options, name) == getattr(launch, name)


@pytest.mark.parametrize("option", ["--output-file", "--write-baseline"])
def test_no_report_replaces_a_config_that_is_linted(ds_accum: Any, good: Path, option: str) -> None:
    before = good.read_bytes()
    finished = ds_accum("lint", good, option, good.parent / "." / good.name)
    assert (finished.code, finished.output) == (2, "")
    assert f"{option} " in finished.errors and "would replace a config that is linted" in finished.errors
    assert good.read_bytes() == before
