"""The shell around the subcommands: help, exit codes, and one sentence for whatever goes wrong."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import ds_accum as package
from ds_accum.cli.main import SUBCOMMANDS, cli

REPOSITORY = Path(__file__).resolve().parent.parent.parent


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "ds_accum", *map(str, arguments)]


def environment(**variables: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, **variables}


def run(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    options = {"env": environment(), "cwd": REPOSITORY, **options}
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=60, check=False, **options)


# ---------------------------------------------------------------------------------------------------------------- help


def test_help_names_every_subcommand(ds_accum: Any) -> None:
    finished = ds_accum("--help")
    assert finished.code == 0
    shown = " ".join(finished.output.split())
    for name, says in SUBCOMMANDS.items():
        assert f" {name} {says}" in shown


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_what_the_overview_says_is_what_the_subcommand_says(name: str) -> None:
    subcommand = getattr(import_module(f"ds_accum.cli.{name}"), name)
    assert subcommand.name == name
    assert subcommand.get_short_help_str(limit=200) == SUBCOMMANDS[name]
    assert subcommand.help.startswith(SUBCOMMANDS[name])


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_subcommand_explains_itself_within_80_columns(ds_accum: Any, name: str) -> None:
    finished = ds_accum(name, "--help")
    assert finished.code == 0
    assert f"Usage: ds-accum {name}" in finished.output
    assert max(map(len, finished.output.splitlines())) <= 80


def test_without_a_subcommand_the_help_is_shown_as_an_error(ds_accum: Any) -> None:
    finished = ds_accum()
    assert finished.code == 2
    assert "Commands:" in finished.output


def test_the_version_is_the_packages(ds_accum: Any) -> None:
    assert ds_accum("--version").output == f"ds-accum, version {package.__version__}\n"


# -------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("arguments", "sentence", "remedy"),
    [
        (["lnit"], "there is no subcommand 'lnit'", "did you mean `ds-accum lint`?"),
        (["help"], "there is no subcommand 'help'", "`ds-accum --help` says what there is"),
        (["configs"], "there is no subcommand 'configs'", "did you mean `ds-accum lint configs`?"),
        (["lint", "x", "--wrld-size", "8"], "no such option '--wrld-size'", "did you mean --world-size?"),
        (["completion"], "missing argument '{bash|zsh|fish}'", "`ds-accum completion --help`"),
        (["init", "--world-size", "8", "--stage", "5"], "ZeRO has the stages 0, 1, 2 and 3, not 5", "init --help`"),
        (["init", "--world-size", "8", "--learning-rate", "0"], "must be more than 0, not 0", "init --help`"),
        (["init", "--world-size", "8", "--gradient-clipping", "nan"], "must be at least 0, not nan", "init --help`"),
        (["lint"], "missing argument 'PATH...'", "`ds-accum lint --help`"),
        (["steps"], "missing argument 'LOG...'", "`ds-accum steps --help`"),
        (["lint", "x", "--format", "xml"], "'xml' is not one of 'full', 'concise', 'json'", "`ds-accum lint --help`"),
    ],
)
def test_a_wrong_call_gets_one_sentence_and_where_to_look(
    ds_accum: Any, arguments: list[str], sentence: str, remedy: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository)
    finished = ds_accum(*arguments)
    assert (finished.code, finished.output) == (2, "")
    error, help_ = finished.errors.splitlines()
    assert error.startswith("error: ") and sentence in error
    assert not error.endswith(".")
    assert help_.startswith("help: ") and remedy in help_


def crash(*_: object, **__: object) -> None:
    raise ZeroDivisionError("division by zero\x1b[31m")


def test_a_bug_of_ours_is_one_sentence_with_how_to_report_it(
    ds_accum: Any, good: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ds_accum.lint.targets.find_targets", crash)
    finished = ds_accum("lint", good)
    assert (finished.code, finished.output) == (2, "")
    error, help_ = finished.errors.splitlines()
    assert error == r"error: ds-accum failed with ZeroDivisionError: division by zero\x1b[31m"
    assert "bug of ds-accum" in help_ and "DS_ACCUM_TRACEBACK=1" in help_


def test_the_traceback_of_a_bug_is_shown_on_request(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ds_accum.lint.targets.find_targets", crash)
    monkeypatch.setenv("DS_ACCUM_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        cli(["lint", str(good)], prog_name="ds-accum")


# ------------------------------------------------------------------------------------------------ the operating system


def test_python_dash_m_is_the_same_command() -> None:
    finished = run("lint", "configs/zero2.json", "--world-size", "8")
    assert (finished.returncode, finished.stderr) == (0, "")
    assert finished.stdout.startswith("nothing found in 1 file, for DeepSpeed ")


def test_a_reader_that_goes_away_ends_the_command_quietly(mismatch: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    finished = subprocess.run(
        command("lint", mismatch, "--world-size", "8"),
        stdout=writing,
        stderr=subprocess.PIPE,
        env=environment(),
        timeout=60,
        check=False,
    )
    os.close(writing)
    assert (finished.returncode, finished.stderr) == (141, b"")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_an_interrupt_ends_the_command_quietly(folder: Path) -> None:
    pipe = folder / "pipe.json"
    os.mkfifo(pipe)
    # What was started in the background of a shell has its children ignore interrupts, too.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            command("lint", pipe), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), text=True
        )
    finally:
        signal.signal(signal.SIGINT, before)
    # Opening the pipe waits until the command reads from it.
    with pipe.open("w"):
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors.strip()) == (130, "", "")


@pytest.mark.skipif(sys.platform == "win32", reason="needs pseudo-terminals")
def test_a_terminal_gets_colour_and_its_own_width(mismatch: Path) -> None:
    import fcntl
    import pty
    import struct
    import termios

    variables = {
        name: value for name, value in environment(TERM="xterm").items() if name not in ("COLUMNS", "NO_COLOR")
    }
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    finished = subprocess.run(
        command("lint", mismatch, "--world-size", "8"), stdout=theirs, env=variables, timeout=60, check=False
    )
    os.close(theirs)
    # What was written fits into the terminal's buffer; reading on would wait for more.
    output = os.read(ours, 100_000).decode()
    os.close(ours)
    assert finished.returncode == 1
    assert "\x1b[1;31merror[DSA101]\x1b[0m" in output
    widths = [len(re.sub(r"\x1b\[[\d;]*m", "", line)) for line in output.splitlines()]
    assert 50 < max(widths) <= 60


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_an_error_not_a_bug(mismatch: Path) -> None:
    with Path("/dev/full").open("w") as full:
        finished = subprocess.run(
            command("lint", mismatch, "--world-size", "8"),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            timeout=60,
            check=False,
        )
    assert (finished.returncode, finished.stderr) == (2, "error: can't write the output: no space left on device\n")


def test_an_output_that_can_not_show_a_character_shows_its_escape(folder: Path) -> None:
    path = folder / "größe.json"
    path.write_text('{"train_batch_size": "名"}', encoding="utf-8")
    finished = run("lint", path, env=environment(PYTHONIOENCODING="latin-1"), encoding="latin-1")
    assert (finished.returncode, finished.stderr) == (1, "")
    assert "größe.json:1:22: error[DSA104]" in finished.stdout
    assert r'{"train_batch_size": "\u540d"}' in finished.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_a_file_name_that_is_no_text_is_linted_and_shown_with_escapes(folder: Path) -> None:
    path = os.fsencode(folder) + b"/\xff.json"
    with open(path, "wb") as file:  # noqa: PTH123 - a path of bytes
        file.write(b'{"train_batch_size": "8"}')
    for format_name in ("full", "concise", "json"):
        finished = run("lint", os.fsdecode(path), "--format", format_name, encoding="utf-8")
        assert (finished.returncode, finished.stderr) == (1, "")
        assert r"/\udcff.json" in finished.stdout


def test_a_command_without_output_or_input_streams_still_has_its_exit_code(mismatch: Path) -> None:
    line = " ".join(command("lint", "-", mismatch, "--world-size", "8"))
    finished = subprocess.run(
        ["sh", "-c", f"{line} <&- >&-"], env=environment(), stderr=subprocess.PIPE, timeout=60, check=False, text=True
    )
    assert (finished.returncode, finished.stderr) == (2, "error: there is no standard input to read\n")
