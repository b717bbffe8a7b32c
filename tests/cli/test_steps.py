"""`ds-accum steps`: the summary and the plot of a log, as text, as JSON and as a page."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from ds_accum.engine.step_log import as_json_line
from ds_accum.steps.reading import read_logs
from ds_accum.steps.summary import summarize
from tests.steps.example_run import eventful_run, example_run, report, write_log

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def log(folder: Path) -> Path:
    """steps.jsonl in the working directory: a run of 400 steps that was resumed once."""
    eventful_run(folder / "steps.jsonl")
    return Path("steps.jsonl")


def run(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    return subprocess.run(
        [sys.executable, "-m", "ds_accum", "steps", *map(str, arguments)],
        env={**environment, "PYTHONPATH": str(REPOSITORY), **variables},
        capture_output=True,
        timeout=60,
        check=False,
    )


def golden(name: str) -> str:
    return (REPOSITORY / "tests/steps/golden" / name).read_text("utf-8")


# ---------------------------------------------------------------------------------------------------------- what it says


def test_a_log_is_summarized_and_plotted(ds_accum: Any, log: Path) -> None:
    finished = ds_accum("steps", log)
    assert (finished.code, finished.errors) == (0, "")
    assert finished.output == golden("text.txt")


def test_json_is_the_summary_for_a_program(ds_accum: Any, log: Path) -> None:
    finished = ds_accum("steps", log, "--format", "json")
    assert (finished.code, finished.errors) == (0, "")
    assert finished.output == golden("json.json")
    said = json.loads(finished.output)
    assert (said["version"], said["files"], said["summary"]["steps"]) == (1, ["steps.jsonl"], 400)


def test_a_page_is_written_besides(ds_accum: Any, log: Path, folder: Path) -> None:
    finished = ds_accum("steps", log, "--html", "steps.html")
    assert (finished.code, finished.errors, finished.output) == (0, "", golden("text.txt"))
    assert (folder / "steps.html").read_text("utf-8") == golden("html.html")


def test_standard_input_is_read(ds_accum: Any, log: Path) -> None:
    finished = ds_accum("steps", "-", stdin=log.read_bytes())
    assert finished.code == 0
    assert finished.output.splitlines()[0] == "standard input"
    assert finished.output.splitlines()[1] == golden("text.txt").splitlines()[1]


def test_the_logs_of_resumed_runs_are_read_as_one(ds_accum: Any, folder: Path) -> None:
    steps = list(example_run(40))
    write_log(folder / "one.jsonl", steps[:30])
    write_log(folder / "two.jsonl", steps[20:])
    finished = ds_accum("steps", "one.jsonl", "two.jsonl", "--format", "json")
    said = json.loads(finished.output)
    assert (said["files"], said["summary"]["steps"]) == (["one.jsonl", "two.jsonl"], 40)
    assert "from 30 to 21 at two.jsonl:1" in said["notes"][0]


# ------------------------------------------------------------------------------------------------------- where it is read


def test_ascii_is_enough_for_a_terminal_that_has_no_more(log: Path) -> None:
    finished = run(log, PYTHONIOENCODING="ascii")
    assert (finished.returncode, finished.stderr) == (0, b"")
    assert finished.stdout.decode("ascii") == golden("text-ascii.txt")


def test_there_is_no_colour_in_a_pipe_unless_it_is_asked_for(log: Path) -> None:
    utf8 = {"PYTHONIOENCODING": "utf-8"}
    assert run(log, **utf8).stdout.decode() == golden("text.txt")
    assert run(log, "--color", "always", **utf8).stdout.decode() == golden("text-color.txt")
    assert run(log, FORCE_COLOR="1", **utf8).stdout.decode() == golden("text-color.txt")
    assert run(log, FORCE_COLOR="1", NO_COLOR="1", **utf8).stdout.decode() == golden("text.txt")


@pytest.mark.skipif(sys.platform == "win32", reason="needs pseudo-terminals")
@pytest.mark.parametrize("no_color", [False, True])
def test_a_terminal_gets_its_own_width_and_colour_unless_it_wants_none(log: Path, no_color: bool) -> None:
    import fcntl
    import pty
    import struct
    import termios

    variables = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    variables |= {"TERM": "xterm", "PYTHONPATH": str(REPOSITORY), "PYTHONIOENCODING": "utf-8"}
    if no_color:
        variables["NO_COLOR"] = "1"
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 60, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "ds_accum", "steps", log], stdout=theirs, env=variables, stderr=subprocess.PIPE
    )
    os.close(theirs)
    output = b""
    try:
        while read := os.read(ours, 4096):
            output += read
    except OSError:  # Linux says so when the other end is closed
        pass
    _, errors = process.communicate(timeout=60)
    os.close(ours)
    assert (process.returncode, errors) == (0, b"")
    text = output.decode()
    assert ("\x1b[36m" in text) is not no_color
    assert max(len(re.sub(r"\x1b\[\d+m", "", line)) for line in text.splitlines()) in (59, 60)


# ---------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "can't read steps.jsonl: no such file or directory"),
        ("", "there is no step in steps.jsonl"),
        ("step,loss\n1,2\n", "steps.jsonl:1: not JSON: expecting value, in step,loss"),
        ('{"train_batch_size": 8}\n', "steps.jsonl:1: this line lacks step, ranks, num_tokens, "),
        (as_json_line(report(1)) + "\n[]\n", "steps.jsonl:2: expected an object, found []"),
        ("\x1b[31m\n", r"steps.jsonl:1: not JSON: expecting value, in \x1b[31m"),
    ],
)
def test_what_can_not_be_read_is_one_sentence(ds_accum: Any, folder: Path, text: str | None, sentence: str) -> None:
    if text is not None:
        (folder / "steps.jsonl").write_text(text, encoding="utf-8")
    finished = ds_accum("steps", "steps.jsonl")
    assert (finished.code, finished.output) == (2, "")
    assert finished.errors.startswith(f"error: {sentence}")
    assert len(finished.errors.splitlines()) <= 2


def test_a_log_is_never_replaced_by_its_page(ds_accum: Any, log: Path) -> None:
    before = log.read_bytes()
    finished = ds_accum("steps", log, "--html", f"./{log}")
    assert finished.code == 2
    assert "--html steps.jsonl would replace a log that is read" in finished.errors
    assert log.read_bytes() == before


def test_nothing_is_said_where_the_page_can_not_be_written(ds_accum: Any, log: Path) -> None:
    finished = ds_accum("steps", log, "--html", "absent/steps.html")
    assert (finished.code, finished.output) == (2, "")
    assert finished.errors == "error: can't write absent/steps.html: no such file or directory\n"


# ------------------------------------------------------------------------------------------------------------- what it costs


def test_neither_torch_nor_anything_else_that_is_slow_is_loaded(log: Path) -> None:
    code = (
        "import sys\nfrom ds_accum.cli.main import cli\n"
        f"try: cli(['steps', {str(log)!r}, '--html', 'steps.html'], prog_name='ds-accum')\nexcept SystemExit: pass\n"
        "print(*{'torch', 'deepspeed', 'numpy', 'pydantic', 'yaml', 'matplotlib'} & set(sys.modules), file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.strip()) == (0, "")


def test_a_long_log_is_never_held_whole(folder: Path) -> None:
    """20,000 steps are 10 MB of text and 50 MB of parsed objects."""
    first, rest = as_json_line(report(1)).split("1", 1)
    with Path("steps.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(f"{first}{step}{rest}\n" for step in range(1, 20_001))
    tracemalloc.start()
    try:
        assert summarize(read_logs(["steps.jsonl"]).steps).steps == 20_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000
