"""`ds-accum plan`: the recipe in, the report and the config out, and one sentence for whatever is wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

RECIPE = ("--model", "llama-2-7b", "--gpus", "8", "--seq-len", "4096", "--tokens-per-step", "2Mi")


def test_a_recipe_becomes_a_report(ds_accum: Any) -> None:
    finished = ds_accum("plan", *RECIPE, "--hardware", "h100")
    assert (finished.code, finished.errors) == (0, "")
    assert finished.output.startswith("llama-2-7b on 8 x H100-80GB\n- best of ")
    assert max(map(len, finished.output.splitlines())) <= 80


@pytest.mark.parametrize(
    ("format_name", "start"), [("md", "# llama-2-7b on 8"), ("html", "<!doctype html>"), ("json", "{")]
)
def test_every_format_is_written(ds_accum: Any, format_name: str, start: str) -> None:
    finished = ds_accum("plan", *RECIPE, "--hardware", "h100", "--format", format_name)
    assert finished.code == 0
    assert finished.output.lower().startswith(start.lower())


def test_samples_and_tokens_ask_for_the_same(ds_accum: Any) -> None:
    by_tokens = ds_accum("plan", *RECIPE, "--format", "json")
    by_samples = ds_accum("plan", *RECIPE[:-2], "--global-batch", "512", "--format", "json")
    assert by_tokens.output == by_samples.output
    assert json.loads(by_tokens.output)["global_batch_size"] == 512


def test_the_written_config_passes_ds_accum_lint_for_its_launch(ds_accum: Any, folder: Path) -> None:
    finished = ds_accum(
        "plan", *RECIPE, "--max-pp", "4", "--layout", "3", "--write", "ds_config.json", "--format", "json"
    )
    assert finished.code == 0
    assert finished.errors == "note: ds_config.json holds the config of layout 3\n"
    layout = json.loads(finished.output)["layouts"][2]
    assert json.loads(Path("ds_config.json").read_text("utf-8")) == layout["deepspeed_config"]
    linted = ds_accum("lint", "ds_config.json", *layout["lint"].split())
    assert (linted.code, linted.errors) == (0, "")
    assert linted.output.startswith("nothing found in 1 file")


def test_a_file_that_is_there_is_kept_unless_forced(ds_accum: Any, folder: Path) -> None:
    Path("ds_config.json").write_text("mine", "utf-8")
    finished = ds_accum("plan", *RECIPE, "--write", "ds_config.json")
    assert (finished.code, finished.output) == (2, "")
    assert finished.errors.startswith("error: ds_config.json is there already\n")
    assert Path("ds_config.json").read_text("utf-8") == "mine"
    assert ds_accum("plan", *RECIPE, "--write", "ds_config.json", "--force").code == 0
    assert json.loads(Path("ds_config.json").read_text("utf-8"))["train_batch_size"] == 512


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (("--write", "nope/x.json"), "can't write nope/x.json: no such file or directory"),
        (("--write", "file/x.json"), "can't write file/x.json: "),
        (("--write", "x.json", "--output-file", "x.json"), "--write and --output-file are both x.json"),
        (("--write", "x.json", "--output-file", "./x.json", "--force"), "--write and --output-file are both x.json"),
    ],
)
def test_a_config_that_can_not_be_written_is_refused_before_anything_is_searched(
    ds_accum: Any, folder: Path, place: tuple[str, ...], said: str
) -> None:
    Path("file").touch()
    finished = ds_accum("plan", *RECIPE, *place)
    assert (finished.code, finished.output) == (2, "")
    assert finished.errors.startswith(f"error: {said}")
    assert not Path("x.json").exists()


def test_what_the_config_is_asked_to_say_it_says(ds_accum: Any, folder: Path) -> None:
    more = ("--learning-rate", "3e-4", "--gradient-clipping", "0.5", "--dtype", "fp16", "--optimizer", "lion")
    assert ds_accum("plan", *RECIPE, "--write", "c.json", *more).code == 0
    config = json.loads(Path("c.json").read_text("utf-8"))
    assert config["optimizer"]["type"] == "Lion" and config["optimizer"]["params"]["lr"] == 3e-4
    assert config["gradient_clipping"] == 0.5 and config["fp16"] == {"enabled": True}


def test_where_nothing_fits_the_code_is_1_and_no_config_is_written(ds_accum: Any, folder: Path) -> None:
    recipe = ("--model", "llama-2-70b", "--gpus", "8", "--seq-len", "4096", "--global-batch", "64")
    finished = ds_accum("plan", *recipe, "--hardware", "a100-40gb", "--write", "ds_config.json")
    assert finished.code == 1
    assert "- nothing fits: none of " in finished.output and "What would help" in finished.output
    assert finished.errors == "note: ds_config.json was not written: nothing fits\n"
    assert not Path("ds_config.json").exists()


def test_the_limits_are_kept(ds_accum: Any) -> None:
    finished = ds_accum(
        *("plan", *RECIPE, "--format", "json", "--top", "1000"),
        *("--max-tp", "2", "--max-pp", "2", "--max-sp", "1", "--max-micro-batch", "4"),
        *("--zero-stages", "1,3", "--recompute", "full", "--max-bubble", "0.05"),
    )
    layouts = json.loads(finished.output)["layouts"]
    assert len(layouts) > 10
    for item in layouts:
        assert item["layout"]["tensor_parallel_size"] <= 2 and item["layout"]["pipeline_parallel_size"] <= 2
        assert item["layout"]["sequence_parallel_size"] == 1 and item["micro_batch_size"] <= 4
        assert item["training"]["zero_stage"] in (1, 3) and item["training"]["recompute"] == "full"
        assert item["bubble_share"] <= 0.05


@pytest.mark.parametrize("share", ["0.15", "15%"])
def test_the_largest_bubble_is_allowed_to_the_last_digit(ds_accum: Any, share: str) -> None:
    """4 stages and 17 micro-batches wait 3/20 of a step, which is above the float next to 0.15."""
    recipe = ("--model", "gpt-125m", "--gpus", "4", "--seq-len", "2048", "--global-batch", "17")
    limits = ("--max-tp", "1", "--max-sp", "1", "--max-bubble", share, "--top", "100", "--format", "json")
    layouts = json.loads(ds_accum("plan", *recipe, *limits).output)["layouts"]
    assert {(item["layout"]["pipeline_parallel_size"], item["gradient_accumulation_steps"]) for item in layouts} == {
        (4, 17)
    }


def test_what_is_assumed_of_the_training_reaches_the_estimate(ds_accum: Any) -> None:
    def best(*more: str) -> dict[str, Any]:
        finished = ds_accum("plan", *RECIPE, "--format", "json", *more)
        found: dict[str, Any] = json.loads(finished.output)["layouts"][0]["training"]
        return found

    assert (best()["grad_accum_dtype"], best()["communication_dtype"]) == ("fp32", "fp32")
    assert best("--grad-accum-dtype", "bf16")["grad_accum_dtype"] is None
    assert best("--attention", "plain")["flash_attention"] is False
    assert best("--kernels", "plain")["fused_kernels"] is False
    assert best("--max-pp", "1", "--megatron-sequence-parallel", "no")["megatron_sequence_parallel"] is False


def test_what_was_not_said_is_noted(ds_accum: Any) -> None:
    recipe = ("--model", "gpt-125m", "--gpus", "12", "--seq-len", "1024", "--global-batch", "48")
    notes = json.loads(ds_accum("plan", *recipe, "--gpu-memory", "60GB", "--format", "json").output)["notes"]
    assert notes == [
        "no --hardware was given: the GPUs are taken for A100-80GB with 60 GB",
        "12 GPUs are no multiple of 8 a node: the last node lends 4",
    ]
    assert json.loads(ds_accum("plan", *RECIPE, "--hardware", "h100", "--format", "json").output)["notes"] == []


def test_a_config_json_is_a_model_and_a_file_is_hardware(ds_accum: Any, folder: Path, repository: Path) -> None:
    model = repository / "configs" / "models" / "llama-2-7b.json"
    kind = repository / "configs" / "hardware" / "H100-80GB.json"
    by_file = ds_accum("plan", "--model", model, *RECIPE[2:], "--hardware", kind)
    by_name = ds_accum("plan", *RECIPE, "--hardware", "H100-80GB")
    # The commands to go on with name the model as it was named.
    assert " ".join(by_file.output.split()).replace(str(model), "llama-2-7b") == " ".join(by_name.output.split())


@pytest.mark.parametrize(
    ("arguments", "said", "remedy"),
    [
        (("--model", "llama-2-7"), "there is no model llama-2-7", "did you mean llama-2-7b?"),
        (("--hardware", "h10"), "there is no hardware 'h10'", "did you mean H100-80GB?"),
        (("--hardware", "none.json"), "can't read none.json: no such file", None),
        (("--tokens-per-step", "4M"), "4000000 tokens a step are no multiple of the sequence length 4096", "3997696"),
        (("--global-batch", "8"), "just one of them", "give the global batch size or the tokens"),
        (("--gpus", "0"), "must be at least 1, not 0", None),
        (("--gpus", "9" * 40), "GPUs are too many to plan for", "fewer than 2^28"),
        (("--seq-len", "9" * 40), "sequence length is beyond 10^15", None),
        (("--tokens-per-step", "nan"), "--tokens-per-step 'nan' is no number", "write it as in 7000000000"),
        (("--gpu-memory", "80"), "--gpu-memory '80' is 80 bytes", "as in 80GB"),
        (("--gpu-memory", "80GBB"), "--gpu-memory '80GBB' is no number", "80GB"),
        (("--gpu-memory", "0"), "--gpu-memory must be at least 1", "set --gpu-memory to 1 or more"),
        (("--zero-stages", "4"), "ZeRO has the stages 0, 1, 2 and 3, not '4'", None),
        (("--recompute", "some"), "must be of none, selective and full, not 'some'", None),
        (("--max-bubble", "15"), "--max-bubble: '15' is more than the whole", "15 % is written 15%"),
        (("--max-bubble", "1"), "a share from 0 to below 1, not 1", "15 % of the step"),
        (("--max-bubble", "nan"), "--max-bubble: 'nan' is not a number of at least 0", None),
        (("--grad-accum-dtype", "fp16"), "gradients of bf16 do not add up in fp16", "fp32 or bf16"),
        (("--compute-share", "0"), "must be more than 0, not 0", None),
        (("--link-share", "2"), "must be at most 1, not 2", None),
        (("--learning-rate", "inf"), "must be more than 0, not inf", None),
        (("--hardware", "v100"), "V100-32GB does not compute in bf16", "fp16 or fp32"),
        (("--layout", "9999", "--write", "c.json"), "there is no layout 9999 among", "give one of their numbers"),
        (
            ("--max-tp", "1", "--max-pp", "1", "--max-sp", "1", "--gpus", "48"),
            "512 is not a multiple of data parallel 48",
            "480 or 528",
        ),
    ],
)
def test_whatever_is_wrong_is_one_sentence_with_what_to_do(
    ds_accum: Any, folder: Path, arguments: tuple[str, ...], said: str | None, remedy: str | None
) -> None:
    finished = ds_accum("plan", *RECIPE, *arguments)
    if said is None:  # 80 bytes is a memory, if one in which nothing fits
        assert finished.code == 1
        return
    assert (finished.code, finished.output) == (2, "")
    error, *rest = finished.errors.splitlines()
    assert error.startswith("error: ") and said in error and not error.endswith(".")
    assert remedy is None or (rest and rest[0].startswith("help: ") and remedy in rest[0])
    assert not Path("c.json").exists()


def test_help_lists_the_options_under_headings(ds_accum: Any) -> None:
    finished = ds_accum("plan", "--help")
    for heading in ("Model:", "Target", "GPUs:", "Limits of the search:", "Training:", "Config:", "Report:"):
        assert f"\n{heading}" in finished.output


def test_the_layout_that_is_written_is_the_one_that_is_told(ds_accum: Any, folder: Path) -> None:
    finished = ds_accum("plan", *RECIPE, "--layout", "2", "--write", "second.json")
    assert finished.code == 0
    shown = " ".join(finished.output.split())
    assert "Layout 2: to launch it" in shown and "Layout 1: to launch it" not in shown
    written = json.loads((folder / "second.json").read_text("utf-8"))
    batch, accumulation = written["train_batch_size"], written["gradient_accumulation_steps"]
    assert f"Global batch {batch} = micro batch {written['train_micro_batch_size_per_gpu']} x" in shown
    assert f"accumulation {accumulation}." in shown
    for name in ("lint", "ledger", "memory"):
        (command,) = re.findall(f"`ds-accum {name} (second.json [^`]*)`", shown)
        assert ds_accum(name, *command.split()).code == 0


def test_a_layout_that_is_not_there_is_refused_without_write_too(ds_accum: Any) -> None:
    finished = ds_accum("plan", *RECIPE, "--layout", "9999")
    assert (finished.code, finished.output) == (2, "")
    assert "there is no layout 9999 among" in finished.errors
