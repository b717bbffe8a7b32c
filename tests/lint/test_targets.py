"""What a user names becomes the documents that they mean, each once, and what was named in vain is said."""

from __future__ import annotations

import base64
import io
import os
from pathlib import Path

import pytest

from ds_accum.config.launch import Launch
from ds_accum.errors import LayoutError
from ds_accum.lint.targets import Targets, find_targets

CONFIG = '{"train_batch_size": 8}'
OTHER = '{"name": "not a config"}'
ACCELERATE = "distributed_type: DEEPSPEED\nnum_processes: {}\ndeepspeed_config: {{deepspeed_config_file: {}}}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, the root of a project."""
    monkeypatch.chdir(tmp_path)
    Path("setup.py").touch()
    return tmp_path


def write(files: dict[str, str]) -> None:
    for name, text in files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def names(targets: Targets) -> list[str]:
    return [target.document.filename for target in targets.found]


def problems(targets: Targets) -> list[str]:
    return [str(problem) for problem in targets.problems]


# --------------------------------------------------------------------------------------------------- files and folders


def test_a_file_that_is_named_is_linted_whatever_it_holds() -> None:
    write({"notes.txt": "not a config", "other.json": OTHER})
    targets = find_targets(["notes.txt", "other.json"])
    assert names(targets) == ["notes.txt", "other.json"]
    assert targets.problems == ()


def test_a_folder_gives_its_configs_by_content_in_sorted_order() -> None:
    write(
        {
            "conf/b.json": CONFIG,
            "conf/a.hjson": "{train_batch_size: 8}",
            "conf/package.json": OTHER,
            "conf/deep/er/c.yaml": "zero_optimization: {stage: 1}",
            "conf/deep/d.YML": "steps_per_print: 1",
            "conf/e.txt": CONFIG,
            "conf/broken.json": '{"train_batch_size": 8, "fp16": {',
        }
    )
    assert names(find_targets(["conf"])) == [
        "conf/a.hjson",
        "conf/b.json",
        "conf/broken.json",
        "conf/deep/d.YML",
        "conf/deep/er/c.yaml",
    ]


def test_the_working_directory_is_named_without_a_prefix() -> None:
    write({"ds.json": CONFIG})
    assert names(find_targets(["."])) == ["ds.json"]


@pytest.mark.parametrize("skipped", [".git", "node_modules", "lib/site-packages", "__pycache__", ".tox"])
def test_folders_of_other_people_are_skipped(skipped: str) -> None:
    write({f"{skipped}/ds.json": CONFIG, "mine/ds.json": CONFIG})
    assert names(find_targets(["."])) == ["mine/ds.json"]


def test_a_virtual_environment_is_skipped_whatever_its_name() -> None:
    write({"my env/pyvenv.cfg": "", "my env/ds.json": CONFIG, "mine/ds.json": CONFIG})
    assert names(find_targets(["."])) == ["mine/ds.json"]


def test_a_skipped_folder_is_searched_if_it_is_named() -> None:
    write({"node_modules/ds.json": CONFIG})
    assert names(find_targets(["node_modules"])) == ["node_modules/ds.json"]


def test_a_folder_without_a_config_is_a_problem() -> None:
    write({"conf/package.json": OTHER, "conf/readme.md": ""})
    targets = find_targets(["conf"])
    assert targets.found == ()
    assert problems(targets) == ["there is no DeepSpeed config in conf: looked at 1 file (.json, .hjson, .yaml, .yml)"]


def test_what_is_not_there_is_a_problem_with_what_may_have_been_meant() -> None:
    write({"ds_config.json": CONFIG, "known.json": OTHER})
    Path("dangling.json").symlink_to("nowhere.json")
    found = find_targets(["ds_confg.json", "ds_config.jsn", "nope.json", "dangling.json", ""])
    assert [(str(problem), problem.remedy) for problem in found.problems] == [
        ("there is no file or folder ds_confg.json", "did you mean ds_config.json?"),
        ("there is no file or folder ds_config.jsn", "did you mean ds_config.json?"),
        ("there is no file or folder nope.json", None),
        ("dangling.json is a link to what is not there", None),
        ("a path is empty", "is the variable set that it comes from?"),
    ]


def test_a_file_is_linted_once_however_often_it_is_named() -> None:
    write({"conf/ds.json": CONFIG})
    Path("link.json").symlink_to("conf/ds.json")
    assert names(find_targets(["conf/ds.json", "conf", "./conf/ds.json", "link.json", "*.json"])) == ["conf/ds.json"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_in_a_folder_is_not_waited_for() -> None:
    write({"ds.json": CONFIG})
    os.mkfifo("pipe.json")
    Path("dangling.json").symlink_to("nowhere.json")
    targets = find_targets(["."])
    assert (names(targets), problems(targets)) == (["ds.json"], [])


def test_links_between_folders_are_not_followed_in_circles() -> None:
    write({"conf/ds.json": CONFIG})
    Path("conf/again").symlink_to("..", target_is_directory=True)
    assert names(find_targets(["conf"])) == ["conf/ds.json"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_a_problem_and_the_rest_is_linted() -> None:
    write({"secret.json": CONFIG, "ds.json": CONFIG, "closed/ds.json": CONFIG})
    Path("secret.json").chmod(0)
    Path("closed").chmod(0)
    try:
        targets = find_targets(["secret.json", "closed/ds.json", "closed", "ds.json"])
    finally:
        Path("closed").chmod(0o700)
    assert names(targets) == ["ds.json"]
    assert problems(targets)[:3] == [
        "can't read secret.json: permission denied",
        "can't read closed/ds.json: permission denied",
        "can't read closed: permission denied",
    ]


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that even root can't read")
def test_a_file_that_fails_to_be_read_is_a_problem_and_the_rest_is_linted() -> None:
    write({"ds.json": CONFIG})
    targets = find_targets(["/proc/self/mem", "ds.json"])
    assert names(targets) == ["ds.json"]
    assert problems(targets) == ["can't read /proc/self/mem: input/output error"]


def test_a_file_as_large_as_a_checkpoint_is_not_read_to_its_end() -> None:
    with Path("model.bin").open("wb") as file:
        file.truncate(50_000_000_000)  # a hole: it takes no space
    (target,) = find_targets(["model.bin"]).found
    assert [problem.kind.value for problem in target.document.problems] == ["too-large"]


# ---------------------------------------------------------------------------------------------- globs, missing, base64


def test_a_glob_is_what_a_shell_would_make_of_it() -> None:
    write({"conf/b.json": CONFIG, "conf/a.json": OTHER, "conf/deep/c.json": CONFIG, "conf/d.txt": CONFIG})
    assert names(find_targets(["conf/*.json"])) == ["conf/a.json", "conf/b.json"]
    assert names(find_targets(["conf/**/*.json"])) == ["conf/a.json", "conf/b.json", "conf/deep/c.json"]
    assert names(find_targets(["con?"])) == ["conf/b.json", "conf/deep/c.json"]


def test_a_file_whose_name_looks_like_a_glob_is_that_file() -> None:
    write({"ds[1].json": CONFIG, "ds1.json": CONFIG})
    assert names(find_targets(["ds[1].json"])) == ["ds[1].json"]


def test_a_glob_without_a_match_is_a_problem() -> None:
    assert problems(find_targets(["conf/*.json"])) == ["no file matches conf/*.json"]


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("conf/zero2.jsn", "did you mean conf/zero2.json or conf/zero3.json?"),
        ("cnof/zero2.json", "did you mean conf/zero2.json?"),
        ("elsewhere.toml", None),
        ("x" * 5000, None),
        ("nul\0byte", None),
    ],
)
def test_a_missing_file_is_a_problem_that_names_those_nearby(name: str, remedy: str | None) -> None:
    write({"conf/zero2.json": CONFIG, "conf/zero3.json": CONFIG})
    (problem,) = find_targets([name]).problems
    assert str(problem).startswith("there is no file or folder ") and len(str(problem)) < 150
    assert problem.remedy == remedy


def test_a_word_that_is_no_file_is_read_as_base64() -> None:
    word = base64.urlsafe_b64encode(b"{train_batch_size: 8\r\n}").decode()
    (target,) = find_targets([word]).found
    assert target.origin.is_base64
    assert (target.document.filename, target.document.value) == ("<base64>", {"train_batch_size": 8})


def test_a_file_comes_before_base64() -> None:
    word = base64.urlsafe_b64encode(b"{}").decode()
    write({word: CONFIG})
    (target,) = find_targets([word]).found
    assert not target.origin.is_base64


# ------------------------------------------------------------------------------------------------------ standard input


def test_standard_input_is_read_once() -> None:
    stream = io.BytesIO(CONFIG.encode())
    targets = find_targets(["-", "-"], standard_input=stream)
    assert names(targets) == ["<stdin>"]
    assert targets.found[0].document.value == {"train_batch_size": 8}


def test_a_missing_standard_input_is_a_problem() -> None:
    assert problems(find_targets(["-"])) == ["there is no standard input to read"]


def test_standard_input_can_stand_for_a_file() -> None:
    write({"conf/ds.json": CONFIG})
    stream = io.BytesIO(ACCELERATE.format(4, "ds.json").encode())
    targets = find_targets(["-"], standard_input=stream, standard_input_name="conf/accelerate.yaml")
    assert names(targets) == ["conf/accelerate.yaml", "conf/ds.json"]


# ---------------------------------------------------------------------------------------------- what a YAML launches


def test_the_file_that_an_accelerate_yaml_names_is_linted_as_it_launches_it() -> None:
    write({"ds.json": CONFIG, "accelerate.yaml": ACCELERATE.format(4, "ds.json")})
    yaml, config = find_targets(["accelerate.yaml"]).found
    assert yaml.origin.reference is not None and yaml.origin.reference.path == Path("ds.json")
    assert config.launches([Launch()]) == [Launch(framework="accelerate", world_size=4)]
    assert yaml.launches([Launch()]) == [Launch(world_size=4)]


def test_what_is_given_outweighs_what_the_yaml_says() -> None:
    write({"ds.json": CONFIG, "accelerate.yaml": ACCELERATE.format(4, "ds.json")})
    _, config = find_targets(["accelerate.yaml"]).found
    given = Launch(framework="huggingface", world_size=2)
    assert config.launches([given]) == [given]


@pytest.mark.parametrize("order", [["a4.yaml", "a8.yaml", "ds.json"], ["ds.json", "a8.yaml", "a4.yaml"], ["."]])
def test_a_file_that_several_launch_is_linted_once_for_each(order: list[str]) -> None:
    write({"ds.json": CONFIG, "a4.yaml": ACCELERATE.format(4, "ds.json"), "a8.yaml": ACCELERATE.format(8, "ds.json")})
    targets = find_targets(order)
    assert sorted(names(targets)) == ["a4.yaml", "a8.yaml", "ds.json"]
    (config,) = (target for target in targets.found if target.document.filename == "ds.json")
    launches = config.launches([Launch()])
    assert sorted(launch.world_size or 0 for launch in launches) == [4, 8]
    assert {launch.framework for launch in launches} == {"accelerate"}


def test_a_layout_that_does_not_fit_the_processes_names_the_yaml() -> None:
    write({"ds.json": CONFIG, "accelerate.yaml": ACCELERATE.format(4, "ds.json")})
    _, config = find_targets(["accelerate.yaml"]).found
    with pytest.raises(LayoutError, match=r"num_processes in accelerate\.yaml: world 4 is not a multiple of tensor 3"):
        config.launches([Launch(tensor_parallel_size=3)])


def test_yaml_files_that_name_each_other_are_not_followed_in_circles() -> None:
    write({"a.yaml": ACCELERATE.format(4, "b.yaml"), "b.yaml": ACCELERATE.format(4, "a.yaml")})
    assert names(find_targets(["a.yaml"])) == ["a.yaml", "b.yaml"]
