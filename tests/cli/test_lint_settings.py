"""`ds-accum lint` with settings, suppressions, baselines and reports for other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

TWO = """{
  "train_batch_size": 100, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
  "zero_optimization": {"stage": 2, "overlap_com": true}
}
"""
WARNS = '{"train_micro_batch_size_per_gpu": 8, "gradient_clipping": 1.0, "ds_accum": {"lint": {"ignore": {"X": "y"}}}}'


def codes(finished: Any) -> list[str]:
    """The codes of a concise report."""
    return [line.split(": ")[1].split(" ")[0] for line in finished.output.splitlines()]


@pytest.fixture
def two(folder: Path) -> Path:
    """ds.json in the working directory: DSA102 at a world of 8, and DSA701."""
    (folder / ".git").mkdir()
    (folder / "ds.json").write_text(TWO, encoding="utf-8")
    return folder


@pytest.fixture
def lint(ds_accum: Any, two: Path) -> Any:
    def run(*arguments: str, path: str = "ds.json") -> Any:
        return ds_accum("lint", path, "--deepspeed-version", "0.19.8", "--format", "concise", *arguments)

    return run


def settings(text: str, name: str = "ds-accum.toml") -> None:
    Path(name).write_text(text, encoding="utf-8")


# ------------------------------------------------------------------------------------------------------------ selection


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ["DSA102", "DSA701"]),
        (["--select", "DSA1"], ["DSA102"]),
        (["--select", "dsa1,DSA7", "--ignore", "DSA102"], ["DSA701"]),
        (["--select", "DSA1", "--select", "DSA7"], ["DSA102", "DSA701"]),
        (["--ignore", "ALL"], []),
        (["--select", "ALL", "--ignore", "DSA7"], ["DSA102"]),
    ],
)
def test_rules_are_chosen_on_the_command_line(lint: Any, options: list[str], expected: list[str]) -> None:
    assert codes(lint("--world-size", "8", *options)) == expected


def test_a_code_that_is_none_is_a_mistake(lint: Any) -> None:
    finished = lint("--select", "DSA1,unknown-key")
    assert (finished.code, finished.output) == (2, "")
    assert finished.errors == (
        "error: --select: 'unknown-key' is no code of a rule, and no code begins so\nhelp: did you mean DSA701?\n"
    )


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ('select = ["DSA1"]', [], ["DSA102"]),
        ('select = ["DSA1"]', ["--select", "DSA7"], ["DSA701"]),
        ('select = ["DSA1"]', ["--ignore", "DSA102"], []),
        ('ignore = ["DSA1"]', ["--ignore", "DSA7"], []),
        ('ignore = ["DSA1"]', ["--select", "ALL"], ["DSA102", "DSA701"]),
        ('per-file-ignores = {"ds.json" = ["DSA1"]}', ["--select", "ALL"], ["DSA701"]),
        ('per-file-ignores = {"other.json" = ["DSA1"]}', [], ["DSA102", "DSA701"]),
    ],
)
def test_rules_are_chosen_in_layers(lint: Any, text: str, options: list[str], expected: list[str]) -> None:
    settings(text)
    assert codes(lint("--world-size", "8", *options)) == expected


# ------------------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("options", "in_file", "in_settings", "world_size"),
    [
        (["--world-size", "2"], 4, 8, 2),
        (["--nodes", "1", "--gpus-per-node", "2"], 4, 8, 2),
        ([], 4, 8, 4),
        (["--no-inline-config"], 4, 8, 8),
        (["--isolated"], 4, 8, 4),
        ([], None, 8, 8),
        (["--no-settings", "--no-inline-config"], 4, 8, None),
    ],
)
def test_the_command_line_outweighs_the_file_and_the_file_the_settings(
    ds_accum: Any, two: Path, options: list[str], in_file: int | None, in_settings: int, world_size: int | None
) -> None:
    settings(f"world-size = {in_settings}\n")
    block = {} if in_file is None else {"ds_accum": {"lint": {"world_size": in_file}}}
    Path("a.json").write_text(json.dumps({"train_batch_size": 8, **block}), encoding="utf-8")
    report = json.loads(ds_accum("lint", "a.json", "--format", "json", *options).output)
    assert report["world_sizes"] == ([] if world_size is None else [world_size])


def test_the_processes_of_accelerate_outweigh_the_settings(ds_accum: Any, two: Path) -> None:
    settings("world-size = 2\nframework = 'lightning'\n")
    text = "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
    Path("a.yaml").write_text(text, encoding="utf-8")
    finished = ds_accum("lint", "a.yaml", "--show-settings")
    page = finished.output.split("\n\n")[1]
    assert page.startswith("ds.json\n")
    assert [line.split() for line in page.splitlines() if "world-size" in line] == [["world-size", "8", "a.yaml"]]
    assert ["framework", "accelerate", "a.yaml"] in [line.split() for line in page.splitlines()]


def test_every_launch_setting_reaches_the_launch(ds_accum: Any, two: Path) -> None:
    settings(
        'world-size = "16"\ntp = 2\npp = 2\ncp = 2\nsp = 2\nep = 1\nframework = "hf"\nclient-optimizer = true\n'
        'client-scheduler = "no"\nengine = "ds-accum"\naccelerator = "npu"\ntarget-deepspeed = "0.18.5"\n'
    )
    finished = ds_accum("lint", "ds.json", "--show-settings")
    rows = [line.split() for line in finished.output.splitlines()[1:13]]
    assert finished.code == 0
    assert {row[0]: row[1] for row in rows} == {
        "target-deepspeed": "0.18.5",
        "world-size": "16",
        **dict.fromkeys(("tp", "pp", "cp", "sp"), "2"),
        "ep": "1",
        "framework": "huggingface",
        "client-optimizer": "yes",
        "client-scheduler": "no",
        "engine": "ds-accum",
        "accelerator": "npu",
    }
    assert all(row[2].startswith("ds-accum.toml:") for row in rows)
    assert "for DeepSpeed 0.18.5 (ds-accum.toml:12) at world size 16\n" in ds_accum("lint", "ds.json").output


def test_the_settings_in_force_are_shown_once_for_the_files_that_share_them(ds_accum: Any, two: Path) -> None:
    settings("tp = 2\n")
    (two / "b.json").write_text(TWO, encoding="utf-8")
    (two / "deep").mkdir()
    (two / "deep" / "c.json").write_text(TWO, encoding="utf-8")
    settings("fail-on = 'never'\n", "deep/ds-accum.toml")
    finished = ds_accum("lint", ".", "--show-settings", "--pp", "2", "--ignore", "DSA4")
    first, second = finished.output.split("\n\n")
    assert first.startswith("b.json\nds.json\n  target-deepspeed ") and second.startswith("deep/c.json\n  target-")
    first_rows = [line.split() for line in first.splitlines()]
    assert ["tp", "2", "ds-accum.toml:1"] in first_rows and ["pp", "2", "--pp"] in first_rows
    assert ["ignore", "DSA4", "--ignore"] in first_rows and ["fail-on", "error", "default"] in first_rows
    assert ["fail-on", "never", "deep/ds-accum.toml:1"] in [line.split() for line in second.splitlines()]


def test_each_file_fails_by_its_own_settings(lint: Any, two: Path) -> None:
    (two / "deep").mkdir()
    settings("fail-on = 'never'\n")
    assert lint().code == 0
    assert lint("--fail-on", "error").code == 1
    (two / "deep" / "ds.json").write_text(WARNS, encoding="utf-8")
    settings("fail-on = 'warning'\n", "deep/ds-accum.toml")
    finished = lint(path=".")
    assert finished.code == 1
    assert codes(lint("--quiet", path=".")) == ["DSA021"]


def test_two_releases_in_one_run_are_both_named(ds_accum: Any, two: Path) -> None:
    (two / "deep").mkdir()
    (two / "deep" / "ds.json").write_text(TWO, encoding="utf-8")
    settings('target-deepspeed = "0.18.5"\n')
    settings('target-deepspeed = "0.19.8"\n', "deep/ds-accum.toml")
    assert "for DeepSpeed 0.19.8 (for some files 0.18.5)," in ds_accum("lint", ".").output
    assert "for DeepSpeed 0.19.7 (given)," in ds_accum("lint", ".", "--deepspeed-version", "0.19.7").output


def test_what_is_excluded_is_not_found_in_a_folder_but_may_be_named(lint: Any, two: Path) -> None:
    (two / "old").mkdir()
    (two / "old" / "a.json").write_text(WARNS, encoding="utf-8")
    (two / "b.gen.json").write_text(WARNS, encoding="utf-8")
    settings('exclude = ["old", "*.gen.json"]\n')
    assert codes(lint(path=".")) == ["DSA701"]
    assert codes(lint(path="old/a.json")) == ["DSA021"]
    assert codes(lint("--no-settings", path=".")) == ["DSA021", "DSA701", "DSA021"]


def test_a_wrong_settings_file_is_one_error(lint: Any) -> None:
    settings("tp = 2\nworld = 8\n")
    finished = lint()
    assert (finished.code, finished.output) == (2, "")
    assert finished.errors == 'error: ds-accum.toml:2: there is no setting "world"\nhelp: did you mean world-size?\n'
    assert lint("--no-settings").code == 1


def test_degrees_that_do_not_fit_are_an_error_that_names_their_sources(lint: Any) -> None:
    settings("world-size = 8\n")
    finished = lint("--tp", "3")
    assert finished.code == 2
    assert finished.errors.startswith(
        "error: ds.json, with world-size of ds-accum.toml:1, tp of --tp: world 8 is not a multiple of tensor 3"
    )


def test_standard_input_has_the_settings_of_the_name_that_it_is_given(ds_accum: Any, two: Path) -> None:
    (two / "deep").mkdir()
    settings("world-size = 8\n", "deep/ds-accum.toml")
    for name, expected in (("deep/ds.json", ["DSA102", "DSA701"]), ("ds.json", ["DSA701"])):
        finished = ds_accum("lint", "-", "--stdin-filename", name, "--format", "concise", stdin=TWO)
        assert codes(finished) == expected


# -------------------------------------------------------------------------------------------------------- in the config


def test_what_is_suppressed_is_counted(ds_accum: Any, two: Path) -> None:
    text = TWO.replace("\n}", ',\n  "ds_accum": {"lint": {"ignore": {"DSA701": "a fork of DeepSpeed knows it"}}}\n}')
    Path("ds.json").write_text(text, encoding="utf-8")
    finished = ds_accum("lint", "ds.json", "--deepspeed-version", "0.19.8")
    assert (finished.code, finished.output) == (
        0,
        "nothing found (1 suppressed) in 1 file, for DeepSpeed 0.19.8 (given), world size\nnot given\n",
    )
    assert codes(ds_accum("lint", "ds.json", "--no-inline-config", "--format", "concise")) == ["DSA701"]


# ------------------------------------------------------------------------------------------------------------- baseline


def test_only_what_is_new_fails_and_what_is_mended_is_said(lint: Any, two: Path) -> None:
    finished = lint("--write-baseline", "known.json")
    assert (finished.code, finished.output, finished.errors) == (0, "", "note: known.json now knows 1 finding\n")
    before = Path("known.json").read_text(encoding="utf-8")
    assert lint("--baseline", "known.json").code == 0

    finished = lint("--baseline", "known.json", "--world-size", "8")
    assert (finished.code, codes(finished), finished.errors) == (1, ["DSA102"], "")

    Path("ds.json").write_text(TWO.replace("overlap_com", "overlap_comm"), encoding="utf-8")
    finished = lint("--baseline", "known.json")
    assert finished.code == 0
    assert finished.errors == (
        "note: known.json knows DSA701 at zero_optimization.overlap_com of ds.json, which is found no more\n"
    )
    assert lint("--baseline", "known.json", "--ignore", "DSA7").errors == ""
    assert Path("known.json").read_text(encoding="utf-8") == before


def test_a_long_list_of_what_is_mended_is_cut(lint: Any, two: Path) -> None:
    keys = ", ".join(f'"key{number}": 1' for number in range(12))
    Path("ds.json").write_text(f'{{"train_batch_size": 8, "zero_optimization": {{{keys}}}}}', encoding="utf-8")
    assert lint("--write-baseline", "known.json").code == 0
    Path("ds.json").write_text('{"train_batch_size": 8}', encoding="utf-8")
    *_, last = lines = lint("--baseline", "known.json", "--select", "DSA701").errors.splitlines()
    assert len(lines) == 11 and last == "note: known.json knows 2 more that are found no more"


def test_a_baseline_is_not_recorded_through_another(lint: Any) -> None:
    finished = lint("--baseline", "a.json", "--write-baseline", "b.json")
    assert finished.code == 2 and "leave --baseline out" in finished.errors
    assert not Path("b.json").exists()


def test_a_baseline_that_is_not_there_is_an_error(lint: Any) -> None:
    finished = lint("--baseline", "known.json")
    assert finished.code == 2
    assert finished.errors.startswith("error: can't read the baseline known.json: no such file")


# -------------------------------------------------------------------------------------------------------------- reports


def test_a_report_for_a_file_goes_nowhere_else(lint: Any, two: Path) -> None:
    printed = lint().output
    finished = lint("--output-file", "report.txt")
    assert (finished.code, finished.output, finished.errors) == (1, "", "")
    assert Path("report.txt").read_text(encoding="utf-8") == printed
    assert sorted(path.name for path in two.iterdir() if "report" in path.name) == ["report.txt"]


def test_the_report_of_real_rules_is_valid_sarif(ds_accum: Any, repository: Path) -> None:
    schema = json.loads((repository / "tests/data/schemas/sarif-schema-2.1.0.json").read_text(encoding="utf-8"))
    finished = ds_accum("lint", repository / "tests" / "data" / "broken", "--world-size", "8", "--format", "sarif")
    log = json.loads(finished.output)
    jsonschema.Draft4Validator(schema).validate(log)
    assert all(rule["fullDescription"]["text"] for rule in log["runs"][0]["tool"]["driver"]["rules"])


def test_quiet_leaves_out_what_does_not_fail_and_the_summary(ds_accum: Any, two: Path) -> None:
    Path("warns.json").write_text(WARNS, encoding="utf-8")
    finished = ds_accum("lint", "warns.json", "--quiet")
    assert (finished.code, finished.output) == (0, "")
    finished = ds_accum("lint", "warns.json", "ds.json", "-q")
    assert finished.code == 1
    assert finished.output.startswith("ds.json:3:37: error[DSA701]") and "1 error" not in finished.output
    assert ds_accum("lint", "ds.json", "-q", "--fail-on", "never").output == ""


def test_statistics_count_each_rule(ds_accum: Any, two: Path) -> None:
    Path("b.json").write_text(TWO, encoding="utf-8")
    finished = ds_accum("lint", ".", "--world-size", "8", "--ignore", "DSA102", "--statistics")
    assert (finished.code, finished.output) == (1, "2  DSA701  error    unknown-key\n")
    finished = ds_accum("lint", "ds.json", "--statistics", "--format", "json")
    assert finished.code == 2 and "leave --format json out" in finished.errors


def test_a_link_out_of_the_project_shows_no_line(ds_accum: Any, two: Path) -> None:
    project = two / "project"
    project.mkdir()
    (project / ".git").mkdir()
    (project / "ds.json").symlink_to(two / "ds.json")
    (project / "inside.json").write_text(TWO, encoding="utf-8")
    (project / "link.json").symlink_to("inside.json")
    finished = ds_accum("lint", "project/ds.json", "--select", "DSA701")
    assert "project/ds.json:3:37: error[DSA701]" in finished.output and '"stage": 2' not in finished.output
    assert "= note: no line is shown: the file is a link to one outside the project\n" in finished.output
    assert '"stage": 2' in ds_accum("lint", "project/link.json", "--select", "DSA701").output
