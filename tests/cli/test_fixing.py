"""`ds-accum lint --fix` and `--diff`: what is written, what is not, and that nothing is ever half written."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ds_accum.cli.fixing as fixing
from ds_accum.cli.fixing import unified_diff
from ds_accum.lint.rules import RULES

BEFORE = """{
  // eight samples a rank
  "train_micro_batch_size_per_gpu": "8",
  "gradient_clipping": 1.0,
  "zero_optimization": {"stage": 2, "overlap_com": true}
}
"""
AFTER = BEFORE.replace('"8"', "8").replace("overlap_com", "overlap_comm")
UNSAFE = (
    '{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2,'
    ' "gradient_clipping": 1}'
)
UNSAFE_AFTER = UNSAFE.replace('"train_batch_size": 8, ', "")
ACCELERATE = "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  deepspeed_config_file: {}\n"


@pytest.fixture
def config(folder: Path) -> Path:
    """ds.json in the working directory, with two findings that have a safe fix."""
    path = folder / "ds.json"
    path.write_bytes(BEFORE.encode())
    return Path(path.name)


def as_a_process(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """The command with its real streams: bytes that are no text, line ends as they are."""
    return subprocess.run(
        [sys.executable, "-m", "ds_accum", *arguments],
        input=stdin,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        timeout=60,
    )


# -------------------------------------------------------------------------------------------------------------- --fix


def test_a_file_is_fixed_and_the_report_says_what_was_and_what_remains(ds_accum: Any, config: Path) -> None:
    finished = ds_accum("lint", config, "--fix", "--world-size", "8", "--deepspeed-version", "0.19.8")
    assert (finished.code, finished.errors) == (0, "")
    assert finished.output == (
        "nothing found in 1 file, for DeepSpeed 0.19.8 (given) at world size 8\nfixed 2 in ds.json\n"
    )
    assert config.read_text("utf-8") == AFTER


def test_without_fix_the_report_says_what_it_would_do(ds_accum: Any, config: Path) -> None:
    finished = ds_accum("lint", config)
    assert finished.code == 1
    assert "    = fix: rename overlap_com to overlap_comm (safe; --fix applies it)\n" in finished.output
    assert finished.output.endswith("\n--fix would fix 2\n")
    assert config.read_text("utf-8") == BEFORE


def test_only_unsafe_fixes_asks_for_what_may_change_the_training(ds_accum: Any, folder: Path) -> None:
    path = folder / "ds.json"
    path.write_text(UNSAFE, "utf-8")
    finished = ds_accum("lint", path, "--fix", "--world-size", "8")
    assert finished.code == 1
    assert "= fix: remove train_batch_size (unsafe; --fix --unsafe-fixes applies it)" in finished.output
    assert finished.output.endswith("\n--fix --unsafe-fixes would fix 1\n")
    assert path.read_text("utf-8") == UNSAFE
    assert ds_accum("lint", path, "--fix", "--unsafe-fixes", "--world-size", "8").code == 0
    assert path.read_text("utf-8") == UNSAFE_AFTER


def test_a_fix_is_applied_only_if_it_is_right_for_every_world(ds_accum: Any, folder: Path) -> None:
    path = folder / "ds.json"
    path.write_text(UNSAFE, "utf-8")
    # The config is right at 2 ranks, so what mends it for 8 has to wait for somebody who knows.
    assert ds_accum("lint", path, "--fix", "--unsafe-fixes", "--world-size", "2,8").code == 1
    assert path.read_text("utf-8") == UNSAFE


def test_the_file_that_accelerate_launches_is_fixed_too(ds_accum: Any, folder: Path, config: Path) -> None:
    (folder / "accelerate.yaml").write_text(ACCELERATE.format("ds.json"), "utf-8")
    ds_accum("lint", "accelerate.yaml", "--fix")
    assert config.read_text("utf-8") == AFTER


def test_a_config_inside_of_accelerates_file_is_fixed(ds_accum: Any, folder: Path) -> None:
    path = folder / "accelerate.yaml"
    text = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  gradient_clipping: '1.0'  # the norm\n  zero_stage: 2\n"
    path.write_text(text, "utf-8")
    finished = ds_accum("lint", path, "--fix")
    assert path.read_text("utf-8") == text.replace("'1.0'", "1.0"), finished.output


def test_json_counts_what_was_fixed_and_carries_what_could_be(ds_accum: Any, folder: Path, config: Path) -> None:
    (folder / "other.json").write_text(UNSAFE, "utf-8")
    report = json.loads(ds_accum("lint", config, "other.json", "--fix", "--world-size", "8", "--format", "json").output)
    assert report["fixed"] == [{"filename": "ds.json", "count": 2}]
    (left,) = report["diagnostics"]
    (edit,) = left["fix"].pop("edits")
    assert left["fix"] == {"title": "remove train_batch_size", "safe": False}
    assert UNSAFE[: edit["start"]["offset"]] + edit["text"] + UNSAFE[edit["end"]["offset"] :] == UNSAFE_AFTER


# ------------------------------------------------------------------------------------------------------- how it writes


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_the_mode_of_the_file_stays(ds_accum: Any, config: Path, mode: int) -> None:
    config.chmod(mode)
    assert ds_accum("lint", config, "--fix").code == 0
    assert config.stat().st_mode & 0o7777 == mode


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only the superuser can give files away")
def test_the_owner_of_the_file_stays(ds_accum: Any, config: Path) -> None:
    os.chown(config, 1234, 5678)
    assert ds_accum("lint", config, "--fix").code == 0
    assert (config.stat().st_uid, config.stat().st_gid) == (1234, 5678)


def test_a_link_stays_a_link_and_its_target_is_fixed(ds_accum: Any, folder: Path, config: Path) -> None:
    (folder / "elsewhere").mkdir()
    target = config.rename(folder / "elsewhere" / "ds.json")
    config.symlink_to(Path("elsewhere") / "ds.json")
    assert ds_accum("lint", config, "--fix").code == 0
    assert config.is_symlink()
    assert target.read_text("utf-8") == AFTER
    assert [path.name for path in target.parent.iterdir()] == ["ds.json"]


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["", "\n", "\n\n"])
def test_line_ends_the_byte_order_mark_and_the_end_of_the_file_stay(
    ds_accum: Any, config: Path, mark: str, line_end: str, last: str
) -> None:
    def written(text: str) -> bytes:
        return (mark + (text.rstrip("\n") + last).replace("\n", line_end)).encode("utf-8")

    config.write_bytes(written(BEFORE))
    assert ds_accum("lint", config, "--fix").code == 0
    assert config.read_bytes() == written(AFTER)


def test_a_clean_file_is_not_touched(ds_accum: Any, good: Path) -> None:
    before = good.stat()
    assert ds_accum("lint", good, "--fix").code == 0
    assert (good.stat().st_ino, good.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_read_only_file_is_one_clear_error_and_nothing_is_written(ds_accum: Any, folder: Path, config: Path) -> None:
    other = folder / "another.json"
    other.write_text(BEFORE, "utf-8")
    config.chmod(0o444)
    finished = ds_accum("lint", other, config, "--fix")
    assert (finished.code, finished.output) == (2, "")
    assert finished.errors == "error: can't write ds.json: the file is read-only\n"
    assert config.read_text("utf-8") == other.read_text("utf-8") == BEFORE


def test_a_read_only_folder_is_one_clear_error(ds_accum: Any, folder: Path, config: Path) -> None:
    folder.chmod(0o555)
    try:
        finished = ds_accum("lint", config, "--fix")
    finally:
        folder.chmod(0o755)
    assert (finished.code, finished.errors) == (2, "error: can't write ds.json: its folder is read-only\n")
    assert config.read_text("utf-8") == BEFORE


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    ds_accum: Any, folder: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    finished = ds_accum("lint", config, "--fix")
    assert finished.code == 2
    assert finished.errors.endswith("ds.json: no space left on device\n")
    assert config.read_text("utf-8") == BEFORE
    assert sorted(path.name for path in folder.iterdir()) == ["ds.json", "pyproject.toml"]


def test_a_file_that_somebody_changes_meanwhile_is_left_alone(
    ds_accum: Any, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = fixing.write

    def write_late(*arguments: Any) -> None:
        config.write_text("{}", "utf-8")
        write(*arguments)

    monkeypatch.setattr(fixing, "write", write_late)
    finished = ds_accum("lint", config, "--fix")
    assert finished.code == 2
    assert finished.errors.startswith("error: can't write ds.json: it was changed while it was read\n")
    assert config.read_text("utf-8") == "{}"


def test_a_fix_that_is_wrong_is_our_failure_and_nothing_is_written(
    ds_accum: Any, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ds_accum.lint.fixer.passes.edited", lambda text, edits: text[:-3])
    finished = ds_accum("lint", config, "--fix")
    assert (finished.code, finished.output) == (2, "")
    assert finished.errors.startswith("error: the fixes of ds.json change more than they say: ")
    assert config.read_text("utf-8") == BEFORE


# ------------------------------------------------------------------------------------------------ what is not a file


def test_standard_input_is_printed_fixed_and_its_report_goes_to_standard_error(ds_accum: Any, folder: Path) -> None:
    finished = ds_accum("lint", "-", "--fix", "--deepspeed-version", "0.19.8", stdin=BEFORE)
    assert (finished.code, finished.output) == (0, AFTER)
    assert finished.errors == (
        "nothing found in 1 file, for DeepSpeed 0.19.8 (given), world size not given\nfixed 2 in <stdin>\n"
    )
    assert [path.name for path in folder.iterdir()] == ["pyproject.toml"]


@pytest.mark.parametrize("text", [b"", b"[]\n", b'{"fp16": ', b"\xff\xfe{\x00}\x00", b'{"a": "' + b"x" * 1_000_001])
def test_standard_input_that_can_not_be_fixed_goes_on_as_it_came(folder: Path, text: bytes) -> None:
    assert as_a_process("lint", "-", "--fix", stdin=text).stdout == text


def test_a_file_that_only_standard_input_names_is_not_written(ds_accum: Any, folder: Path, config: Path) -> None:
    text = ACCELERATE.format("ds.json")
    finished = ds_accum("lint", "-", "--stdin-filename", "accelerate.yaml", "--fix", stdin=text)
    assert (finished.code, finished.output) == (1, text)
    assert "note: ds.json is not edited: only standard input was named\n" in finished.errors
    assert config.read_text("utf-8") == BEFORE


def test_base64_is_not_edited_and_says_why(ds_accum: Any, folder: Path) -> None:
    word = base64.urlsafe_b64encode(BEFORE.encode()).decode()
    finished = ds_accum("lint", word, "--fix")
    assert finished.code == 1
    assert finished.errors == "note: <base64> is not edited: a config in base64 has no file to write to\n"
    assert "= fix:" not in finished.output and "would fix" not in finished.output


def test_what_can_not_be_read_is_not_edited_and_says_why(ds_accum: Any, folder: Path) -> None:
    path = folder / "ds.json"
    path.write_text('{"train_batch_size": "8", "fp16": {{ fp16 }}}', "utf-8")
    finished = ds_accum("lint", path.name, "--fix")
    assert finished.code == 1
    assert finished.errors == (
        "note: ds.json is not edited: what can't be read without a problem may be a template, or mean something else\n"
    )
    assert path.read_text("utf-8") == '{"train_batch_size": "8", "fp16": {{ fp16 }}}'


def test_a_link_that_leads_out_of_the_project_is_not_followed(ds_accum: Any, folder: Path) -> None:
    project = folder / "project"
    project.mkdir()
    (project / "setup.py").touch()
    outside = folder / "outside.json"
    outside.write_text(BEFORE, "utf-8")
    (project / "ds.json").symlink_to(outside)
    for option in ("--fix", "--diff"):
        finished = ds_accum("lint", "project/ds.json", option)
        assert finished.errors == "note: project/ds.json is not edited: it is a link to a file outside the project\n"
        assert "eight samples" not in finished.output
    assert outside.read_text("utf-8") == BEFORE


def test_what_a_config_suppresses_is_not_fixed(ds_accum: Any, folder: Path) -> None:
    path = folder / "ds.json"
    text = BEFORE.replace("{\n", '{\n  "ds_accum": {"lint": {"ignore": {"DSA701": "as the launcher wants it"}}},\n', 1)
    path.write_text(text, "utf-8")
    assert ds_accum("lint", path, "--fix").code == 0
    assert path.read_text("utf-8") == text.replace('"8"', "8")
    assert ds_accum("lint", path, "--fix", "--no-inline-config", "--select", "DSA011").code == 0
    assert path.read_text("utf-8") == text.replace('"8"', "8")


# ------------------------------------------------------------------------------------------------------------- --diff


def test_diff_prints_what_fix_would_change_and_writes_nothing(ds_accum: Any, config: Path) -> None:
    finished = ds_accum("lint", config, "--diff")
    assert (finished.code, finished.errors) == (1, "")
    assert finished.output == unified_diff(BEFORE, AFTER, "ds.json")
    assert config.read_text("utf-8") == BEFORE


def test_diff_of_what_has_no_fix_is_empty_and_exit_code_0(ds_accum: Any, folder: Path) -> None:
    path = folder / "ds.json"
    path.write_text(UNSAFE, "utf-8")
    finished = ds_accum("lint", path, "--diff", "--world-size", "8")
    assert (finished.code, finished.output) == (0, "")
    finished = ds_accum("lint", path, "--diff", "--unsafe-fixes", "--world-size", "8")
    assert finished.code == 1 and finished.output.startswith(f"--- {path}\n+++ {path}\n@@ ")


def test_diff_of_what_can_not_be_read_is_exit_code_2(ds_accum: Any, folder: Path) -> None:
    assert ds_accum("lint", "missing.json", "--diff").code == 2


def test_diff_of_standard_input_is_a_diff(ds_accum: Any, folder: Path) -> None:
    finished = ds_accum("lint", "-", "--stdin-filename", "ds.json", "--diff", stdin=BEFORE)
    assert (finished.code, finished.output) == (1, unified_diff(BEFORE, AFTER, "ds.json"))


@pytest.mark.skipif(shutil.which("patch") is None, reason="needs patch")
@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_patch_makes_of_the_diff_what_fix_makes(config: Path, end: str, line_end: str) -> None:
    def written(text: str) -> bytes:
        return (text.rstrip("\n") + end).replace("\n", line_end).encode("utf-8")

    config.write_bytes(written(BEFORE))
    diff = as_a_process("lint", "ds.json", "--diff").stdout
    subprocess.run(["patch", "--binary", "-s", "-p0"], input=diff, check=True, timeout=60)
    assert config.read_bytes() == written(AFTER)


# ------------------------------------------------------------------------------------------------------ called wrongly


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--fix", "--diff"], "--fix writes what --diff only shows"),
        (["--unsafe-fixes"], "--unsafe-fixes says which fixes --fix and --diff apply"),
        (["--fix", "--baseline", "known.json"], "--fix and --diff know nothing of a baseline"),
        (["--diff", "--format", "json"], "--diff prints a difference and no report: leave --format json out"),
        (["--diff", "--statistics"], "--diff prints a difference and no report: leave --statistics out"),
        (["--diff", "--output-file", "a.diff"], "--diff prints a difference and no report: leave --output-file out"),
        (["--show-settings", "--fix"], "--show-settings lints nothing: leave --fix out"),
        (["--show-settings", "--write-baseline", "a.json"], "lints nothing: leave --write-baseline out"),
    ],
)
def test_options_that_contradict_each_other_are_a_mistake(
    ds_accum: Any, config: Path, options: list[str], sentence: str
) -> None:
    finished = ds_accum("lint", config, *options)
    assert finished.code == 2
    assert sentence in finished.errors
    assert config.read_text("utf-8") == BEFORE


def test_a_rule_that_fails_is_our_failure_and_the_others_are_fixed(
    ds_accum: Any, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> list[Any]:
        raise RuntimeError("it broke")

    rules = [replace(RULES.by_code["DSA001"], check=fail), RULES.by_code["DSA701"], RULES.by_code["DSA104"]]
    monkeypatch.setattr("ds_accum.lint.in_force.RULES", rules)
    assert ds_accum("lint", config, "--fix").code == 2
    assert config.read_text("utf-8") == AFTER
