"""`ds-accum compare`: options, reports and exit codes, with ranks that train nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.compare.runs import LAUNCHER, misbehaving, until, workers_in

REPOSITORY = Path(__file__).resolve().parents[2]
SMALL = ("compare", "--stages", "0", "--baselines", "single", "--steps", "2", "--no-memory", "--timeout", "20")
NAMES = ["zero-0 stock", "zero-0 token", "single"]

# The command as a process of its own, with the ranks of `fake_worker.py`.
PROGRAM = (
    "import ds_accum.cli.compare as compare\nfrom tests.compare.runs import LAUNCHER\n"
    "compare._launcher = lambda options: LAUNCHER\nfrom ds_accum.cli.main import main\nmain()\n"
)

Launches = Callable[[], list[Any]]

pytestmark = pytest.mark.engine


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Launches:
    """Ranks that do as they should, in launches that are recorded."""
    monkeypatch.setattr("ds_accum.cli.compare._launcher", lambda options: LAUNCHER)
    return misbehaving(monkeypatch, folder, {})


# ------------------------------------------------------------------------------------------------------------- reports


def test_a_comparison_is_printed_and_written(ds_accum: Any, launches: Launches, folder: Path) -> None:
    finished = ds_accum(*SMALL)
    assert finished.code == 0
    for name in NAMES:
        assert name in finished.output
    assert "report: comparison/report.html" in finished.output
    assert finished.errors.startswith("  0% parity, communication and speed: starting 2 processes\n")
    report = json.loads((folder / "comparison/report.json").read_text("utf-8"))
    assert [result["name"] for result in report["results"]] == NAMES
    assert (report["parameters"], report["spec"]["steps"]) == (1234, 2)
    page = (folder / "comparison/report.html").read_text("utf-8")
    assert page.lower().startswith("<!doctype html>")
    assert [launch["variants"] for launch in launches()] == [NAMES]


def test_json_alone_is_on_standard_output(ds_accum: Any, launches: Launches, folder: Path) -> None:
    finished = ds_accum(*SMALL, "--format", "json", "--output-dir", "there/it/is")
    assert finished.code == 0
    assert json.loads(finished.output) == json.loads((folder / "there/it/is/report.json").read_text("utf-8"))


def test_quiet_says_nothing(ds_accum: Any, launches: Launches, folder: Path) -> None:
    finished = ds_accum(*SMALL, "--quiet")
    assert (finished.code, finished.output, finished.errors) == (0, "", "")
    assert (folder / "comparison/report.html").exists()


def test_a_report_is_rendered_again_without_running(ds_accum: Any, launches: Launches, folder: Path) -> None:
    first = ds_accum(*SMALL)
    again = ds_accum("compare", "--from", "comparison/report.json")
    assert again.code == 0
    assert again.output.rstrip() == first.output.partition("\nreport: ")[0].rstrip()
    assert len(launches()) == 1
    page = (folder / "comparison/report.html").read_bytes()
    markdown = ds_accum("compare", "--from", "comparison/report.json", "--format", "md", "--output-dir", "again")
    assert markdown.code == 0 and "| zero-0 stock |" in markdown.output
    assert (folder / "again/report.html").read_bytes() == page


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"format": 1, "spec"', "is not JSON"),
        ('{"format": 2}', "the report has format 2"),
        ('{"format": 1}', "damaged"),
        ("[]", "no report"),
        (None, "no such file"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_a_report_that_is_none_is_one_sentence(
    ds_accum: Any, folder: Path, text: str | bytes | None, sentence: str
) -> None:
    if text is not None:
        (folder / "report.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    finished = ds_accum("compare", "--from", "report.json")
    assert (finished.code, finished.output) == (2, "")
    assert finished.errors.startswith("error: ") and sentence in finished.errors
    assert finished.errors.count("\nhelp: ") <= 1 and "bug of ds-accum" not in finished.errors


# -------------------------------------------------------------------------------------------------------- exit code 1


def test_a_limit_that_is_not_kept_fails(ds_accum: Any, launches: Launches) -> None:
    finished = ds_accum(*SMALL, "--quiet", "--fail-if", "parity>1e-4", "--fail-if", "token:step_time>10s")
    assert finished.code == 1
    assert finished.errors == (
        "error: parity>1e-4: the largest relative error of the update against the truth of zero-0 stock is 0.02\n"
    )


def test_a_limit_can_be_held_against_a_report(ds_accum: Any, launches: Launches) -> None:
    assert ds_accum(*SMALL, "--fail-if", "token:parity>1e-4").code == 0
    arguments = ("compare", "--from", "comparison/report.json", "--quiet", "--fail-if")
    assert ds_accum(*arguments, "token:parity>1e-4").code == 0
    assert ds_accum(*arguments, "parity>1e-4").code == 1


def test_a_variant_that_fails_is_in_the_report(
    ds_accum: Any, launches: Launches, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    misbehaving(monkeypatch, folder, {"zero-0 token": "raises"})
    finished = ds_accum(*SMALL)
    assert finished.code == 1
    assert "zero-0 token failed: rank 1 exited with 1: ValueError: only rank 1 fails" in finished.errors
    report = json.loads((folder / "comparison/report.json").read_text("utf-8"))
    assert [result["status"] for result in report["results"]] == ["done", "failed", "done"]
    assert "Traceback" in report["results"][1]["failure"]


def test_a_variant_that_lint_refuses_is_not_run(ds_accum: Any, launches: Launches, folder: Path) -> None:
    (folder / "ds.json").write_text('{"zero_optimization": {"overlap_com": true}}', encoding="utf-8")
    finished = ds_accum(*SMALL, "ds.json")
    assert finished.code == 1
    assert 'error: zero-0 stock is not run: DSA701 zero_optimization has no key "overlap_com"' in finished.errors
    assert [launch["variants"] for launch in launches()] == [["single"]]


def test_the_configs_are_shown(ds_accum: Any, launches: Launches) -> None:
    finished = ds_accum(*SMALL, "--show-configs", "--format", "json")
    assert 'zero-0 stock:\n{\n  "gradient_clipping": 1.0,' in finished.errors
    assert "info: DSA222 nothing looks at stage3_param_persistence_threshold" in finished.errors
    json.loads(finished.output)


# -------------------------------------------------------------------------------------------------------- exit code 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["none.json"], "can't read config none.json: no such file or directory"),
        (["--stages", "4"], "ZeRO has the stages 0, 1, 2 and 3, not 4"),
        (["--engines", "other"], "there are stock, token and none, not 'other'"),
        (["--baselines", "horovod"], "there are ddp, ddp-every, fsdp, fsdp-every, single and none, not 'horovod'"),
        (["--vary", "stage"], "--vary 'stage' is no key=value,value"),
        (["--splits", "3x3"], "split 3x3 is another global batch"),
        (["--fail-if", "speed>1"], "--fail-if knows no metric 'speed'"),
        (["--fail-if", "zero-7:parity>1"], "no variant is called zero-7"),
        (["--workload", "train.py:build"], "there is no file train.py"),
        (["--workload", "train.py"], "--workload train.py names no function"),
        (["--workload", "model"], "there is no file or folder model"),
        (["--width", "10"], "width 10 is no multiple of heads 4"),
        (["--misuse", "--accumulation", "1"], "--misuse needs the middle of a window"),
        (["--project", "64"], "'64' is no projection"),
        (["--from", "report.json", "ds.json"], "--from report.json runs nothing, so ds.json has no use"),
        (["--output-dir", "file"], "Directory 'file' is a file"),
        (["--output-dir", "file/below"], "can't write file/below: not a directory"),
    ],
)
def test_a_wrong_call_is_one_sentence_and_runs_nothing(
    ds_accum: Any, launches: Launches, folder: Path, arguments: list[str], sentence: str
) -> None:
    (folder / "file").touch()
    finished = ds_accum(*SMALL, *arguments)
    assert (finished.code, finished.output) == (2, "")
    assert sentence in finished.errors.splitlines()[0]
    assert launches() == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--hostfile", "hosts"], "--hostfile says nothing without a launcher"),
        (["--master-port", "29500"], "--master-port says nothing without a launcher"),
        (["--launcher", "deepspeed", "--hostfile", "none"], "can't read hostfile none"),
        (["--launcher", "torchrun", "--hostfile", "hosts"], "the 2 hosts of hosts need a folder that all of them see"),
        (["--launcher", "torchrun", "--shared-dir", "none"], "there is no folder none"),
    ],
)
def test_launchers_that_can_not_be_are_refused(
    ds_accum: Any, folder: Path, arguments: list[str], sentence: str
) -> None:
    (folder / "hosts").write_text("worker-0 slots=2\nworker-1 slots=2\n", encoding="utf-8")
    finished = ds_accum(*SMALL, *arguments)
    assert finished.code == 2
    assert sentence in finished.errors.splitlines()[0]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_sentence_after_the_table(ds_accum: Any, launches: Launches, folder: Path) -> None:
    (folder / "comparison").mkdir()
    (folder / "comparison/report.json").symlink_to("/dev/full")
    finished = ds_accum(*SMALL)
    assert finished.code == 2
    assert "zero-0 token" in finished.output
    assert finished.errors.splitlines()[-1] == ("error: can't write comparison/report.json: no space left on device")


# ------------------------------------------------------------------------------------------------------ processes


def started(folder: Path, name: str, how: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    (folder / name).mkdir()
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *SMALL, "--output-dir", f"{name}-report", *arguments],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "FAKE_WORKER": json.dumps(how),
            "FAKE_LOG": str(folder / name / "launches.jsonl"),
            "TMPDIR": str(folder / name),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_ctrl_c_leaves_what_was_finished(folder: Path) -> None:
    process = started(folder, "one", {"zero-0 token": "sleeps"})
    try:
        until(lambda: any("progress" in path.read_text() for path in folder.glob("one/*/events.jsonl")), seconds=60)
        until(lambda: any('"zero-0 token"' in path.read_text() for path in folder.glob("one/*/events.jsonl")))
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "zero-0 stock" in output and "Traceback" not in errors
    report = json.loads((folder / "one-report/report.json").read_text("utf-8"))
    assert [result["status"] for result in report["results"]] == ["done", "unfinished", "unfinished"]
    assert (folder / "one-report/report.html").exists()
    assert workers_in(folder / "one") == []


def test_two_comparisons_at_once_do_not_meet(folder: Path) -> None:
    processes = [started(folder, name, {}) for name in ("one", "two")]
    for process, name in zip(processes, ("one", "two"), strict=True):
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        assert (folder / f"{name}-report/report.html").exists()


def test_the_help_loads_none_of_the_layers_below(folder: Path) -> None:
    code = (
        "import sys\nfrom ds_accum.cli.main import cli\n"
        "try:\n    cli(['compare', '--help'], prog_name='ds-accum')\nexcept SystemExit:\n    pass\n"
        "print(*[name for name in sys.modules if name.startswith('ds_accum.compare') or name == 'pydantic'],"
        " file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, capture_output=True, text=True
    )
    # What the defaults of lists are checked against; neither pydantic nor what runs a comparison.
    assert "pydantic" not in done.stderr and "running" not in done.stderr
