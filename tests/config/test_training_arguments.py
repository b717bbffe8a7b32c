"""TrainingArguments from files and from the command line, and what is said about those that can't be used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ds_accum.config.training_arguments import ARGUMENTS, TrainingArguments, read_argument, read_arguments_file
from ds_accum.errors import UsageError


def written(folder: Path, text: str, name: str = "args.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_an_argument_that_is_not_given_has_its_default() -> None:
    arguments = TrainingArguments.of({"per_device_train_batch_size": 4})
    assert arguments["per_device_train_batch_size"] == 4
    assert arguments["gradient_accumulation_steps"] == 1
    assert arguments.origin("per_device_train_batch_size") == "--hf-args"
    assert arguments.origin("gradient_accumulation_steps") == "its default"


def test_a_null_is_no_value() -> None:
    assert TrainingArguments.of({"max_grad_norm": None})["max_grad_norm"] == 1.0


def test_what_to_json_string_writes_is_read_whole(tmp_path: Path) -> None:
    values = {name: argument.default for name, argument in ARGUMENTS.items()}
    path = written(tmp_path, json.dumps({**values, "seed": 42, "report_to": [], "hub_token": None}), "args.json")
    assert read_arguments_file(path).given == values


def test_a_file_without_an_extension_is_json_if_it_begins_like_it(tmp_path: Path) -> None:
    assert read_arguments_file(written(tmp_path, '{"bf16": true}', "args")).given == {"bf16": True}
    assert read_arguments_file(written(tmp_path, "bf16: true", "args")).given == {"bf16": True}


def test_the_arguments_are_found_among_another_tools_keys(tmp_path: Path) -> None:
    text = "model_name_or_path: a/b\nstage: sft\nlearning_rate: 1e-4\nbf16: true\nwarmup_ratio: 0.1\neval_steps: 5\n"
    assert read_arguments_file(written(tmp_path, text)).given == {
        "learning_rate": 1e-4,
        "bf16": True,
        "warmup_ratio": 0.1,
    }


def test_axolotls_names_are_known_and_what_it_leaves_to_the_hardware_is_not(tmp_path: Path) -> None:
    text = "base_model: a/b\nmicro_batch_size: 2\noptimizer: adamw_torch\nlr_scheduler: cosine\nbf16: auto\n"
    arguments = read_arguments_file(written(tmp_path, text))
    assert arguments.given == {
        "per_device_train_batch_size": 2,
        "optim": "adamw_torch",
        "lr_scheduler_type": "cosine",
    }
    assert not arguments.is_known("bf16") and arguments.is_known("fp16")


def test_a_single_argument_speaks_before_the_file(tmp_path: Path) -> None:
    file = read_arguments_file(written(tmp_path, "bf16: auto\nmax_steps: 10\nper_device_train_batch_size: 1\n"))
    arguments = read_argument("per_device_train_batch_size=4").over(read_argument("--bf16=True").over(file))
    assert arguments.given == {"max_steps": 10, "per_device_train_batch_size": 4, "bf16": True}
    assert arguments.is_known("bf16")
    assert [arguments.origin(name) for name in ("bf16", "max_steps")] == ["--hf-arg", "--hf-args"]


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("- 1\n", "a.yaml", "line 1: a config must be an object of keys and values, found a list"),
        ('{"bf16": tru}', "a.json", "line 1: "),
        ("bf16: maybe\n", "a.yaml", "--hf-args: bf16 must be true or false, but is 'maybe'"),
        ("learning_rate: fast\n", "a.yaml", "--hf-args: learning_rate must be a number, but is 'fast'"),
        ("max_steps: 1.5\n", "a.yaml", "--hf-args: max_steps must be a whole number, but is '1.5'"),
        ("optim: 1\n", "a.yaml", "--hf-args: optim must be a word, but is '1'"),
        (
            "per_device_train_batch_size: 0\n",
            "a.yaml",
            "per_device_train_batch_size must be a whole number from 1 on, but is '0'",
        ),
        (
            "bf16: true\ngradient_acumulation_steps: 4\n",
            "a.yaml",
            'has no gradient_accumulation_steps, but "gradient_ac',
        ),
        ("seed: 1\n", "a.yaml", "gives none of the arguments that a DeepSpeed config is filled in from"),
        ("", "a.yaml", "a.yaml"),
    ],
)
def test_a_file_that_can_not_be_used_is_one_clear_error(tmp_path: Path, text: str, name: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_arguments_file(written(tmp_path, text, name))
    assert message in str(raised.value)


def test_a_missing_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--hf-args: can't read .*args.json: no such file or directory"):
        read_arguments_file(tmp_path / "args.json")
    with pytest.raises(UsageError, match="can't read"):
        read_arguments_file(tmp_path)


@pytest.mark.parametrize(
    ("word", "message", "remedy"),
    [
        ("bf16", "--hf-arg: 'bf16' is not NAME=VALUE", None),
        ("=4", "--hf-arg: '=4' is not NAME=VALUE", None),
        (
            "per_device_batch_size=4",
            '--hf-arg: nothing in a DeepSpeed config comes from an argument "per_device_batch_size"',
            'did you mean "per_device_train_batch_size"?',
        ),
        ("bf16=", "--hf-arg: bf16 must be true or false, but is ''", None),
        ("max_steps=1e400", "--hf-arg: max_steps must be a whole number, but is '1e400'", None),
        ("learning_rate=nan", "--hf-arg: learning_rate must be a number, but is 'nan'", None),
    ],
)
def test_a_word_that_can_not_be_used_is_one_clear_error(word: str, message: str, remedy: str | None) -> None:
    with pytest.raises(UsageError) as raised:
        read_argument(word)
    assert (str(raised.value), raised.value.remedy) == (message, remedy)


def test_an_unknown_name_that_resembles_none_is_answered_with_all_of_them() -> None:
    with pytest.raises(UsageError) as raised:
        read_argument("zzz=1")
    assert (raised.value.remedy or "").startswith("it takes per_device_train_batch_size, ")
