"""The step log: strict JSON, every finished step on the disk, appended to, and never in the way of a training."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from ds_accum.engine.report import StepReport
from ds_accum.engine.step_log import StepLog, as_json_line
from ds_accum.errors import ConfigError
from tests.steps.example_run import report


def refuse_constants(name: str) -> Any:
    raise AssertionError(f"{name} is not JSON")


def strictly(line: str) -> dict[str, Any]:
    values = json.loads(line, parse_constant=refuse_constants)
    assert isinstance(values, dict)
    return values


def steps_in(path: Path) -> list[int]:
    return [strictly(line)["step"] for line in path.read_text("utf-8").splitlines()]


def test_a_line_holds_the_whole_report_and_the_clipped_norm() -> None:
    item = report(grad_norm=4.0, clip_coefficient=0.25)
    assert strictly(as_json_line(item)) == {**dataclasses.asdict(item), "clipped_norm": 1.0}
    assert "\n" not in as_json_line(item)


def test_a_number_comes_back_bit_for_bit() -> None:
    value = 0.1 + 0.2
    assert strictly(as_json_line(report(loss=value)))["loss"] == value


@pytest.mark.parametrize(("value", "word"), [(math.inf, "inf"), (-math.inf, "-inf"), (math.nan, "nan")])
def test_what_is_not_finite_is_a_word(value: float, word: str) -> None:
    values = strictly(as_json_line(report(loss=value, grad_norm=value, clip_coefficient=None)))
    assert (values["loss"], values["grad_norm"], values["clipped_norm"]) == (word, word, word)


def test_what_nobody_knows_is_null() -> None:
    assert strictly(as_json_line(report(grad_norm=None)))["grad_norm"] is None


def test_a_place_that_no_line_can_be_written_to_is_told_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    for name in ("new.jsonl", "folder/to/make/new.jsonl", "file"):
        StepLog(str(tmp_path / name)).check_writable()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    for name, said in (("", "is no file"), ("file/steps.jsonl", "can't be written: see .*file")):
        with pytest.raises(ConfigError, match=f"{said}"):
            StepLog(str(tmp_path / name)).check_writable()


def test_every_step_is_on_the_disk_before_the_next_begins(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    log = StepLog(str(path))
    for step in (1, 2):
        log.write(report(step))
        assert steps_in(path) == list(range(1, step + 1))
    log.close()


def test_a_killed_job_leaves_every_finished_step_behind(tmp_path: Path, repository: Path) -> None:
    code = (
        "import os\nfrom tests.steps.example_run import report\nfrom ds_accum.engine.step_log import StepLog\n"
        "log = StepLog('steps.jsonl')\nlog.write(report(1))\nlog.write(report(2))\nos._exit(9)"
    )
    environment = {**os.environ, "PYTHONPATH": str(repository)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, timeout=60, check=False)
    assert done.returncode == 9
    assert steps_in(tmp_path / "steps.jsonl") == [1, 2]


def test_no_file_is_made_before_the_first_step(tmp_path: Path) -> None:
    with StepLog(str(tmp_path / "steps.jsonl")):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_resumed_run_goes_on_in_the_log_that_it_left(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "one" / "steps.jsonl"
    for step in (1, 2):
        with StepLog(str(path)) as log:
            log.write(report(step))
    assert steps_in(path) == [1, 2]


def test_a_closed_log_is_opened_again_by_the_next_step(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    log = StepLog(str(path))
    log.write(report(1))
    log.close()
    log.close()
    log.write(report(2))
    log.close()
    assert steps_in(path) == [1, 2]


def test_a_line_that_a_killed_job_left_unfinished_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text(as_json_line(report(1)) + "\n" + as_json_line(report(2))[:70], encoding="utf-8")
    with StepLog(str(path)) as log:
        log.write(report(2))
    first, unfinished, second = path.read_text("utf-8").splitlines()
    assert (strictly(first)["step"], strictly(second)["step"]) == (1, 2)
    assert unfinished == as_json_line(report(2))[:70]


def test_a_path_is_relative_to_the_working_directory_of_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with StepLog("steps.jsonl") as log:
        log.write(report())
    assert steps_in(tmp_path / "steps.jsonl") == [1]


def written_without_raising(log: StepLog, reports: list[StepReport]) -> list[str]:
    """The warnings of writing these, and closing."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for item in reports:
            log.write(item)
        log.close()
    assert all(issubclass(warning.category, RuntimeWarning) for warning in caught)
    return [str(warning.message) for warning in caught]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_warned_about_once_and_stops_nothing() -> None:
    said = written_without_raising(StepLog("/dev/full"), [report(1), report(2), report(3)])
    assert said == ["steps are no longer logged: can't write /dev/full: No space left on device"]


def test_a_path_that_can_not_be_is_warned_about_once_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "steps.jsonl", tmp_path):
        (said,) = written_without_raising(StepLog(str(path)), [report(1), report(2)])
        assert said.startswith(f"steps are no longer logged: can't write {path}: ")


def test_reports_and_their_log_need_neither_torch_nor_deepspeed(repository: Path) -> None:
    code = (
        "import sys, ds_accum.engine.report, ds_accum.engine.step_log\n"
        "print(*{'torch', 'deepspeed', 'numpy'} & set(sys.modules))"
    )
    environment = {**os.environ, "PYTHONPATH": str(repository)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "")
