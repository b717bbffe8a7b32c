"""The README's commands print what the README says, and its Python runs.

`PYTHONPATH=. python tests/test_readme.py` writes the real output into the README.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.steps.example_run import example_run, write_log

README = Path(__file__).resolve().parent.parent / "README.md"

FILE = re.compile(r"<!-- file: (?P<name>\S+) -->\n```\w+\n(?P<text>.*?)```", re.DOTALL)
RUN = re.compile(
    r"<!-- run(?:: first (?P<lines>\d+) lines)? -->\n```console\n\$ ds-accum (?P<arguments>.*?)\n(?P<output>.*?)```",
    re.DOTALL,
)
HOVER = re.compile(r"<!-- hover: (?P<line>\d+):(?P<column>\d+) -->\n```markdown\n(?P<said>.*?)```", re.DOTALL)
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


def written_files(folder: Path) -> None:
    for match in FILE.finditer(README.read_text("utf-8")):
        path = folder / match["name"]
        path.parent.mkdir(exist_ok=True)
        path.write_text(match["text"], encoding="utf-8")
    write_log(folder / "steps.jsonl", example_run())


def output_of(arguments: str, folder: Path, lines: str | None) -> str:
    """What the command prints at 80 columns; of a long output the first lines."""
    done = subprocess.run(
        [sys.executable, "-m", "ds_accum", *shlex.split(arguments)],
        cwd=folder,
        env={"PYTHONPATH": str(README.parent), "PATH": "", "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    assert done.returncode in (0, 1), done.stderr
    # Where a file was written is said beside the report.
    assert not done.stderr or done.stderr.startswith("note: ")
    # Which release is judged for depends on what is installed beside ds-accum.
    output = re.sub(r"DeepSpeed \d\S* \((installed|newest known)\)", "DeepSpeed 0.19.8 (installed)", done.stdout)
    return "".join([*output.splitlines(keepends=True)[: int(lines)], "...\n"]) if lines else output


def make_what_is_read(arguments: str, folder: Path) -> None:
    """A file that a command reads and another one of the README writes: that one comes first."""
    for match in RUN.finditer(README.read_text("utf-8")):
        _, writes, file = match["arguments"].partition("--write ")
        if writes and file in arguments.split() and match["arguments"] != arguments:
            output_of(match["arguments"], folder, None)


COMMANDS = [pytest.param(match, id=match["arguments"]) for match in RUN.finditer(README.read_text("utf-8"))]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_prints_what_the_readme_shows(command: re.Match[str], tmp_path: Path) -> None:
    written_files(tmp_path)
    make_what_is_read(command["arguments"], tmp_path)
    assert output_of(command["arguments"], tmp_path, command["lines"]) == command["output"]


def test_the_readme_shows_a_caught_mistake() -> None:
    first = RUN.search(README.read_text("utf-8"))
    assert first is not None and "error[DSA101]" in first["output"] and "error[DSA701]" in first["output"]


def test_the_python_of_the_readme_runs(tmp_path: Path) -> None:
    for program in PYTHON.findall(README.read_text("utf-8")):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            cwd=tmp_path,
            env={"PYTHONPATH": str(README.parent)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        # What it prints stands below it.
        assert done.stdout and all(f"\n# {line}\n" in program for line in done.stdout.splitlines())


def said_on_hovering(line: int, column: int, folder: Path) -> str:
    """What the language server answers for a place of the README's config, counted from 1."""
    from lsprotocol import types

    from ds_accum.config.launch import Launch
    from ds_accum.lint.in_force import CommandLine
    from ds_accum.lsp.answers import hover
    from ds_accum.lsp.checking import check, syntax_of
    from ds_accum.lsp.positions import Places

    text = (folder / "ds_config.json").read_text("utf-8")
    told = CommandLine(launches=(Launch(world_size=64),), version_source="installed")
    syntax = syntax_of("ds_config.json", "json")
    assert syntax is not None
    checked = check(text, filename="ds_config.json", syntax=syntax, told=told)
    answer = hover(checked, Places(text), types.Position(line - 1, column - 1))
    assert answer is not None and isinstance(answer.contents, types.MarkupContent)
    return answer.contents.value.rstrip("\n") + "\n"


def test_hovering_says_what_the_readme_shows(tmp_path: Path) -> None:
    written_files(tmp_path)
    places = list(HOVER.finditer(README.read_text("utf-8")))
    assert places
    for place in places:
        assert said_on_hovering(int(place["line"]), int(place["column"]), tmp_path) == place["said"]


@pytest.mark.engine
def test_deepspeed_says_what_the_readme_quotes(tmp_path: Path) -> None:
    written_files(tmp_path)
    program = (
        "import sys, hjson, deepspeed.runtime.config as c\n"
        "class Ranks:\n"
        "    get_rank = lambda self: 0\n"
        "    get_world_size = lambda self: 64\n"
        "c.dist, values = Ranks(), hjson.load(open(sys.argv[1]))\n"
        "for fix in (None, 'overlap_com'):\n"
        "    values['zero_optimization'].pop(fix, None)\n"
        "    try: c.DeepSpeedConfig(values)\n"
        "    except Exception as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "ds_config.json")],
        env={"PATH": "", "DS_ACCELERATOR": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    first, second = done.stdout.splitlines()[0], done.stdout.splitlines()[-1]
    quoted = " ".join(README.read_text("utf-8").split())
    assert f"`{first}`" in quoted
    assert f"`{' '.join(second.split())}`" in quoted


def test_the_two_commands_of_the_readme_exist_and_explain_themselves(repository: Path) -> None:
    for command in ("bin/demo", "bin/test"):
        assert f"`{command}`" in README.read_text("utf-8")
        done = subprocess.run([repository / command, "--help"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"usage: {command}")


def test_every_folder_that_the_map_names_is_there(repository: Path) -> None:
    package = ("errors.py", "batch", "config", "config/versions", "config/support.py", "config/block.py", "lint")
    for name in (*package, "config/starter.py", "lint/rules/pages", "lint/reporters", "lsp", "steps", "cli"):
        assert (repository / "ds_accum" / name).exists(), name


def rewrite() -> None:
    """Put the real output of every command into the README."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written_files(folder)

        def fresh(match: re.Match[str]) -> str:
            lines = f": first {match['lines']} lines" if match["lines"] else ""
            output = output_of(match["arguments"], folder, match["lines"])
            return f"<!-- run{lines} -->\n```console\n$ ds-accum {match['arguments']}\n{output}```"

        def hovered(match: re.Match[str]) -> str:
            line, column = int(match["line"]), int(match["column"])
            return f"<!-- hover: {line}:{column} -->\n```markdown\n{said_on_hovering(line, column, folder)}```"

        README.write_text(HOVER.sub(hovered, RUN.sub(fresh, README.read_text("utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    rewrite()
