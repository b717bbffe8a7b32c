"""`ds-accum memory`: what a rank needs, from options, from a config, and from both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SMALL = ("--model", "llama-2-7b", "--world-size", "8", "--micro-batch", "1", "--seq-len", "4096")


def estimate(ds_accum: Any, *arguments: str | Path, code: int = 0) -> dict[str, Any]:
    finished = ds_accum("memory", *arguments, "--format", "json")
    assert (finished.code, finished.errors) == (code, "")
    value: dict[str, Any] = json.loads(finished.output)
    return value


def write(folder: Path, **values: Any) -> Path:
    path = folder / "ds_config.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


def test_the_report_fits_80_columns_and_is_the_same_every_time(ds_accum: Any) -> None:
    arguments = (*SMALL, "--zero-stage", "3", "--offload-optimizer", "nvme", "--gpu-memory", "80GB", "--all-stages")
    finished = ds_accum("memory", *arguments)
    assert (finished.code, finished.errors) == (0, "")
    assert max(map(len, finished.output.splitlines())) <= 80
    assert ds_accum("memory", *arguments).output == finished.output
    shown = " ".join(finished.output.split())
    assert "Memory of one rank: llama-2-7b, 6,738,415,616 parameters" in shown
    assert "of 80 GB (74.5 GiB), it" in shown
    assert "on NVMe" in shown
    assert "world 8 = data parallel 8" in shown


@pytest.mark.parametrize("format_name", ["md", "html"])
def test_the_report_is_a_page_and_a_comment_too(ds_accum: Any, format_name: str) -> None:
    finished = ds_accum("memory", *SMALL, "--format", format_name)
    assert (finished.code, finished.errors) == (0, "")
    assert "state of adamw" in finished.output


def test_every_line_has_a_formula_and_a_source_and_they_add_up(ds_accum: Any) -> None:
    told = estimate(ds_accum, *SMALL, "--zero-stage", "2", "--accumulation", "4")
    (stage,) = told["stages"]
    assert all(line["formula"] and line["source"] for line in stage["lines"])
    for moment, amount in stage["bytes_by_moment"].items():
        held = [line["bytes"] for line in stage["lines"] if line["place"] == "device" and moment in line["moments"]]
        assert sum(held) == amount
    assert told["peak_bytes"] == max(stage["bytes_by_moment"].values())


def test_it_is_said_whether_it_fits(ds_accum: Any) -> None:
    peak = estimate(ds_accum, *SMALL, "--zero-stage", "3")["peak_bytes"]
    assert estimate(ds_accum, *SMALL, "--zero-stage", "3", "--gpu-memory", str(peak))["fits"] is True
    assert estimate(ds_accum, *SMALL, "--zero-stage", "3", "--gpu-memory", str(peak - 1), code=1)["fits"] is False
    finished = ds_accum("memory", *SMALL, "--zero-stage", "3", "--gpu-memory", str(peak - 1))
    assert "it does not fit: 1 B too much" in finished.output
    assert finished.code == 1


def test_what_the_estimate_stands_or_falls_with_is_said(ds_accum: Any) -> None:
    shown = " ".join(ds_accum("memory", *SMALL).output.split())
    assert "FlashAttention, fused kernels, pipelines in 1F1B, nothing is recomputed." in shown
    assert "--kernels plain." in shown


@pytest.mark.parametrize("key", ["bf16", "fp16"])
def test_a_dtype_that_trainer_fills_in_is_asked_for(ds_accum: Any, tmp_path: Path, key: str) -> None:
    path = write(tmp_path, train_micro_batch_size_per_gpu=1, **{key: {"enabled": "auto"}})
    arguments = (path, "--model", "llama-2-7b", "--world-size", "8", "--seq-len", "4096")
    finished = ds_accum("memory", *arguments)
    assert finished.code == 2
    assert f'error: {key}.enabled is "auto", which Trainer fills in' in finished.errors
    assert "--dtype" in finished.errors
    assert ds_accum("memory", *arguments, "--dtype", "bf16").code == 0


def test_a_batch_that_trainer_fills_in_is_asked_for_with_options_that_there_are(ds_accum: Any, tmp_path: Path) -> None:
    path = write(tmp_path, train_micro_batch_size_per_gpu="auto", gradient_accumulation_steps="auto")
    finished = ds_accum("memory", path, "--model", "llama-2-7b", "--world-size", "8", "--seq-len", "4096")
    assert finished.code == 2
    assert "--hf-args" not in finished.errors and "--micro-batch and --accumulation" in finished.errors


def test_a_config_says_stage_dtypes_buckets_optimizer_and_offload(ds_accum: Any, tmp_path: Path) -> None:
    config = write(
        tmp_path,
        train_micro_batch_size_per_gpu=2,
        gradient_accumulation_steps=8,
        bf16={"enabled": True},
        data_types={"grad_accum_dtype": "fp32"},
        communication_data_type="fp32",
        optimizer={"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}},
        zero_optimization={
            "stage": 3,
            "reduce_bucket_size": 2e8,
            "stage3_param_persistence_threshold": 10,
            "stage3_max_live_parameters": 3e8,
            "stage3_prefetch_bucket_size": 1e7,
            "offload_optimizer": {"device": "cpu"},
            "offload_param": {"device": "nvme", "nvme_path": "/nvme"},
        },
    )
    told = estimate(ds_accum, config, "--model", "llama-2-7b", "--world-size", "8", "--seq-len", "4096")["training"]
    expected = {
        "micro_batch_size": 2,
        "gradient_accumulation_steps": 8,
        "dtype": "bf16",
        "grad_accum_dtype": "fp32",
        "communication_dtype": "fp32",
        "optimizer": "sgd_momentum",
        "zero_stage": 3,
        "reduce_bucket_size": 200_000_000,
        "param_persistence_threshold": 10,
        "max_live_parameters": 300_000_000,
        "prefetch_bucket_size": 10_000_000,
        "offload_optimizer": "cpu",
        "offload_parameters": "nvme",
    }
    assert {name: told[name] for name in expected} == expected


def test_an_option_counts_in_place_of_the_config(ds_accum: Any, tmp_path: Path) -> None:
    config = write(tmp_path, train_micro_batch_size_per_gpu=2, zero_optimization={"stage": 3}, fp16={"enabled": True})
    told = estimate(ds_accum, config, *SMALL, "--zero-stage", "2", "--dtype", "bf16", "--optimizer", "lion")
    assert told["training"]["zero_stage"] == 2
    assert told["training"]["dtype"] == "bf16"
    assert told["training"]["micro_batch_size"] == 1
    assert told["training"]["optimizer"] == "lion"


def test_gradients_add_up_in_fp32_unless_a_config_or_an_option_says_otherwise(ds_accum: Any, tmp_path: Path) -> None:
    def dtypes(*arguments: str | Path) -> tuple[str | None, str | None]:
        told = estimate(ds_accum, *arguments)["training"]
        return told["grad_accum_dtype"], told["communication_dtype"]

    config = write(tmp_path, train_micro_batch_size_per_gpu=1, zero_optimization={"stage": 2}, bf16={"enabled": True})
    assert dtypes(*SMALL, "--zero-stage", "1") == ("fp32", "fp32")
    assert dtypes(*SMALL) == (None, None)  # ZeRO stage 0 can't
    assert dtypes(*SMALL, "--zero-stage", "1", "--grad-accum-dtype", "bf16") == ("bf16", "bf16")
    assert dtypes(config, *SMALL) == (None, None)
    assert dtypes(config, *SMALL, "--grad-accum-dtype", "fp32") == ("fp32", "fp32")


@pytest.mark.parametrize(
    ("arguments", "splits"),
    [
        (("--tp", "2"), True),
        (("--tp", "2", "--megatron-sequence-parallel", "yes"), True),
        (("--tp", "2", "--megatron-sequence-parallel", "no"), False),
        (("--tp", "2", "--seq-len", "4095"), False),
        ((), False),
    ],
)
def test_norms_are_split_where_the_ranks_divide_the_tokens_as_plan_does(
    ds_accum: Any, arguments: tuple[str, ...], splits: bool
) -> None:
    assert estimate(ds_accum, *SMALL, *arguments)["training"]["megatron_sequence_parallel"] is splits


def test_memory_needs_what_plan_says_of_the_same_layout(ds_accum: Any) -> None:
    recipe = ("--model", "llama-2-7b", "--seq-len", "4096", "--world-size", "8")
    limits = ("--global-batch", "64", "--zero-stages", "1", "--max-pp", "1", "--max-sp", "1", "--recompute", "full")
    planned = json.loads(ds_accum("plan", *recipe, *limits, "--top", "50", "--format", "json").output)["layouts"]
    assert {item["layout"]["tensor_parallel_size"] for item in planned} >= {1, 2, 4}
    for item in planned[::4]:
        sizes = ("--micro-batch", item["micro_batch_size"], "--tp", item["layout"]["tensor_parallel_size"])
        sizes += ("--accumulation", item["gradient_accumulation_steps"], "--zero-stage", "1", "--recompute", "full")
        assert estimate(ds_accum, *recipe, *map(str, sizes))["peak_bytes"] == item["memory"]["peak_bytes"]


def test_what_the_library_knows_of_a_training_can_be_said(ds_accum: Any) -> None:
    arguments = ("--model", "mixtral-8x7b", "--world-size", "16", "--pp", "2", "--tp", "2", "--seq-len", "4096")
    arguments += ("--micro-batch", "1", "--zero-stage", "1")
    more = ("--layers-per-stage", "20,12", "--expert-capacity-factor", "1.25", "--sequence-norm-gradients", "deferred")
    told = estimate(ds_accum, *arguments, *more, "--all-stages")
    assert [stage["num_layers"] for stage in told["stages"]] == [20, 12]
    assert told["training"]["expert_capacity_factor"] == 1.25
    assert told["training"]["sequence_norm_gradients"] == "deferred"


def test_the_ready_configs_are_estimated(ds_accum: Any, repository: Path) -> None:
    for path in sorted((repository / "configs").glob("*.json")):
        told = estimate(ds_accum, path, "--model", "gpt-125m", "--world-size", "8", "--seq-len", "1024")
        assert told["peak_bytes"] > 0


def test_all_stages_of_a_pipeline_are_shown_on_request(ds_accum: Any) -> None:
    arguments = ("--model", "gpt3-175b", "--world-size", "1024", "--tp", "8", "--pp", "16", "--seq-len", "2048")
    arguments += ("--micro-batch", "1", "--accumulation", "64", "--zero-stage", "1")
    told = estimate(ds_accum, *arguments, "--all-stages")
    assert [stage["forwards_in_flight"] for stage in told["stages"]] == list(range(16, 0, -1))
    assert told["peak_bytes"] == estimate(ds_accum, *arguments)["peak_bytes"]
    assert "By pipeline stage" in ds_accum("memory", *arguments, "--all-stages").output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--world-size", "8", "--seq-len", "4096"), "missing option '--model'"),
        (("--model", "llama-2-7b", "--world-size", "8", "--micro-batch", "1"), "activations need a sequence length"),
        (("--model", "llama-2-8b", "--world-size", "8", "--seq-len", "8"), "there is no model llama-2-8b"),
        ((*SMALL[:4], "--seq-len", "8"), "neither global batch nor micro batch is given"),
        ((*SMALL, "--zero-stage", "4"), "ZeRO has the stages 0, 1, 2 and 3, not 4"),
        ((*SMALL, "--micro-batch", "0"), "must be at least 1, not 0"),
        ((*SMALL, "--tp", "3"), "world 8 is not a multiple of tensor 3"),
        ((*SMALL, "--pp", "2", "--zero-stage", "2"), "a pipeline of 2 stages refuses ZeRO stage 2"),
        ((*SMALL, "--ep", "2"), "llama-2-7b has no experts to spread"),
        ((*SMALL, "--cp", "8", "--seq-len", "4095"), "sequence length 4095 can't be cut"),
        ((*SMALL, "--offload-optimizer", "cpu"), "optimizer state can't be offloaded at ZeRO stage 0"),
        ((*SMALL, "--zero-stage", "2", "--offload-parameters", "cpu"), "parameters can't be offloaded"),
        ((*SMALL, "--grad-accum-dtype", "fp32"), "ZeRO stage 0 can't accumulate gradients of bf16 in fp32"),
        ((*SMALL, "--schedule", "interleaved"), "the schedule interleaved has no use for 1 virtual stages"),
        ((*SMALL, "--expert-capacity-factor", "0"), "must be more than 0, not 0"),
        ((*SMALL, "--layers-per-stage", "16,x"), "--layers-per-stage: 'x' is not an integer of at least 1"),
        ((*SMALL, "--layers-per-stage", "16,15"), "layers per stage 16, 15 are not 32 layers on 1 stages"),
        ((*SMALL, "--gpu-memory", "plenty"), "--gpu-memory 'plenty' is no number"),
    ],
)
def test_a_wrong_call_is_told_in_one_sentence(
    ds_accum: Any, folder: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    finished = ds_accum("memory", *arguments)
    assert (finished.code, finished.output) == (2, "")
    assert sentence in " ".join(finished.errors.split())
    assert "Traceback" not in finished.errors
    assert "help:" in finished.errors


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("--model", "llama-2-7b", "--micro-batch", "1", "--seq-len", "8"), "give --world-size"),
        ((*SMALL, "--world-size", "8,16"), "give one --world-size"),
        ((*SMALL, "--world-size", "6", "--tp", "3"), "set tensor parallel to 2 or 4"),
        (
            (*SMALL, "--tp", "8", "--seq-len", "127", "--megatron-sequence-parallel", "yes"),
            "make the sequence length 120 or 128, or leave Megatron's sequence parallel off",
        ),
        ((*SMALL, "--cp", "8", "--seq-len", "127"), "make the sequence length 120 or 128"),
        ((*SMALL, "--model", "mixtral-8x7b", "--world-size", "3", "--ep", "3"), "set expert parallel to 2 or 4"),
        ((*SMALL, "--pp", "4", "--accumulation", "9", "--schedule", "interleaved", "--virtual-stages", "2"), "8 or 12"),
    ],
)
def test_what_to_do_is_something_that_this_command_can(ds_accum: Any, arguments: tuple[str, ...], remedy: str) -> None:
    finished = ds_accum("memory", *arguments)
    assert finished.code == 2
    assert finished.errors.endswith(f"{remedy}\n") and "\nhelp: " in finished.errors
    assert "--vary" not in finished.errors and "--data-parallel" not in finished.errors


@pytest.mark.parametrize("text", ["[]", '{"zero_optimization": {"stage": 2}, "zero_optimization": 3}', "\0"])
def test_a_broken_config_is_told_in_one_sentence(ds_accum: Any, tmp_path: Path, text: str) -> None:
    path = tmp_path / "ds_config.json"
    path.write_text(text, encoding="utf-8")
    finished = ds_accum("memory", path, *SMALL)
    assert (finished.code, finished.output) == (2, "")


def test_a_config_that_is_not_there_is_told(ds_accum: Any, folder: Path) -> None:
    finished = ds_accum("memory", "no-such.json", *SMALL)
    assert (finished.code, finished.output) == (2, "")
    assert finished.errors == "error: can't read config no-such.json: no such file or directory\n"


def test_an_optimizer_whose_state_is_not_known_is_not_guessed(ds_accum: Any, tmp_path: Path) -> None:
    config = write(tmp_path, train_micro_batch_size_per_gpu=1, optimizer={"type": "OneBitAdam", "params": {}})
    finished = ds_accum("memory", config, *SMALL)
    assert finished.code == 2
    assert "what the optimizer OneBitAdam keeps is not known" in finished.errors
    assert estimate(ds_accum, config, *SMALL, "--optimizer", "adam")["training"]["optimizer"] == "adam"
