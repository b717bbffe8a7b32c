"""`ds-accum ledger`: the account of one optimizer step, from options, from a config, and from both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SMALL = ("--micro-batch", "4", "--data-parallel", "8", "--accumulation", "4")


def account(ds_accum: Any, *arguments: str | Path) -> dict[str, Any]:
    finished = ds_accum("ledger", *arguments, "--format", "json")
    assert (finished.code, finished.errors) == (0, "")
    value: dict[str, Any] = json.loads(finished.output)
    return value


def text(ds_accum: Any, *arguments: str | Path) -> str:
    finished = ds_accum("ledger", *arguments)
    assert (finished.code, finished.errors) == (0, "")
    assert all(len(line) <= 80 for line in finished.output.splitlines())
    assert finished.output == ds_accum("ledger", *arguments).output
    output: str = finished.output
    return output


def flat(output: str) -> str:
    """Without line ends, so that a sentence can be found in it."""
    return " ".join(output.split())


def write(folder: Path, **values: Any) -> Path:
    path = folder / "ds_config.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


# ---------------------------------------------------------------------------------------------------------------- batch


@pytest.mark.parametrize("sizes", [("4", "8", "4"), ("8", "16", "1")])
def test_both_splits_are_128_samples(ds_accum: Any, sizes: tuple[str, str, str]) -> None:
    micro, ranks, steps = sizes
    told = account(ds_accum, "--micro-batch", micro, "--data-parallel", ranks, "--accumulation", steps)
    assert told["ledger"]["global_batch_size"] == 128
    assert told["tokens_per_step"] is None


def test_1536_samples_of_2048_tokens_are_3_145_728(ds_accum: Any) -> None:
    output = text(ds_accum, "--global-batch", "1536", "--micro-batch", "1", "--world-size", "64", "--seq-len", "2048")
    assert "1,536 samples x 2,048 = 3,145,728 tokens a step" in output


def test_data_parallel_1_synchronizes_0_times(ds_accum: Any) -> None:
    arguments = ("--micro-batch", "4", "--world-size", "1", "--accumulation", "8", "--parameters", "7B")
    told = account(ds_accum, *arguments)
    assert [stage["synchronizations"] for stage in told["stages"]] == [0, 0, 0, 0]
    assert [stage["sent_bytes"] for stage in told["stages"]] == [0, 0, 0, 0]
    assert "nothing is synchronized" in text(ds_accum, *arguments)


def test_micro_batches_of_a_pipeline_stage_are_the_accumulation(ds_accum: Any) -> None:
    told = account(ds_accum, "--micro-batch", "2", "--accumulation", "6", "--world-size", "16", "--pp", "4")
    assert (told["micro_batches_per_pipeline_stage"], told["ledger"]["global_batch_size"]) == (6, 2 * 4 * 6)
    output = text(ds_accum, "--micro-batch", "2", "--accumulation", "6", "--world-size", "16", "--pp", "4")
    assert "pipeline engine refuses the stages 2 and 3" in output


def test_data_parallel_follows_from_a_whole_batch_without_a_world(ds_accum: Any) -> None:
    told = account(ds_accum, "--global-batch", "128", "--micro-batch", "4", "--accumulation", "4", "--tp", "2")
    assert told["ledger"]["data_parallel_size"] == 8
    assert told["layout"]["world_size"] == 16


def test_bytes_are_those_of_the_formulas(ds_accum: Any) -> None:
    told = account(ds_accum, *SMALL, "--parameters", "1_000_000", "--dtype", "fp32")
    passed = [stage["passed_bytes"] for stage in told["stages"]]
    assert passed == [4_000_000, 4_500_000, 16_500_000, 18_000_000]
    coalesced = account(ds_accum, *SMALL, "--parameters", "1_000_000", "--dtype", "fp32", "--coalesced")
    assert [stage["passed_bytes"] for stage in coalesced["stages"]] == [4_000_000, 4_500_000, 4_500_000, 6_000_000]
    assert [stage["synchronizations"] for stage in coalesced["stages"]] == [1, 1, 1, 1]


def test_of_too_many_splits_one_is_told_what_narrows_them(ds_accum: Any) -> None:
    sizes = ("--data-parallel", "4", "--micro-batch", "720720")
    finished = ds_accum("ledger", "--vary", "any", *sizes)
    assert finished.code == 2 and "those of one data parallel size, which are all" in finished.errors
    assert ds_accum("ledger", "--vary", "all", *sizes, "--seq-len", "1").code == 2
    assert "name those to compare" in ds_accum("ledger", "--vary", "all", *sizes).errors


# --------------------------------------------------------------------------------------------------------------- config


def test_memory_of_splits_is_that_of_the_config_as_memory_estimates_it(ds_accum: Any, folder: Path) -> None:
    path = write(
        folder,
        train_micro_batch_size_per_gpu=2,
        gradient_accumulation_steps=4,
        bf16={"enabled": True},
        data_types={"grad_accum_dtype": "fp32"},
        optimizer={"type": "Lion", "params": {"lr": 1e-4}},
        zero_optimization={"stage": 2, "reduce_bucket_size": 1_000_000, "offload_optimizer": {"device": "cpu"}},
    )
    common = (path, "--world-size", "8", "--tp", "2", "--model", "gpt-125m", "--seq-len", "1024")
    (first, *_) = account(ds_accum, *common, "--vary", "4x4x2")["splits"]
    assert first["ledger"]["micro_batch_size"] == 2
    for stage in (1, 2, 3):
        finished = ds_accum("memory", *common, "--zero-stage", str(stage), "--format", "json")
        assert first["stages"][stage]["peak_bytes"] == json.loads(finished.output)["peak_bytes"]
    output = flat(text(ds_accum, *common, "--vary", "4x4x2"))
    assert "gradients that add up in fp32 and travel in bf16 (under Ulysses in fp32), lion, FlashAttention" in output
    assert "states offloaded to cpu where the stage can. ZeRO-0 adds up in bf16." in output


def test_memory_of_splits_takes_an_optimizer_that_is_not_known_for_adamw(ds_accum: Any, folder: Path) -> None:
    path = write(folder, train_micro_batch_size_per_gpu=2, optimizer={"type": "Mine", "params": {}})
    output = text(ds_accum, path, "--world-size", "8", "--model", "gpt-125m", "--seq-len", "1024", "--vary", "1x8x2")
    assert "Assumed: fp32 parameters, gradients that add up and travel in fp32, adamw" in flat(output)


def test_a_config_says_batch_stage_dtypes_and_reduction(ds_accum: Any, folder: Path) -> None:
    path = write(
        folder,
        train_batch_size=64,
        gradient_accumulation_steps=4,
        bf16={"enabled": True},
        zero_optimization={"stage": 2},
        communication_data_type="fp32",
        ds_accum={"reduction": "boundary"},
    )
    told = account(ds_accum, path, "--world-size", "8", "--parameters", "1M")
    assert (told["zero_stage"], told["ledger"]["micro_batch_size"]) == (2, 2)
    gradients, parameters = told["stages"][2]["transfers"]
    assert (gradients["times"], gradients["bytes_each"]) == (1, 4_000_000)
    assert parameters["bytes_each"] == 2 * 125_000
    assert "2 (chosen)" in text(ds_accum, path, "--world-size", "8")


def test_zero_3_gathers_twice_what_a_config_lets_it_keep_no_longer(ds_accum: Any, folder: Path) -> None:
    gathers = []
    for limit in (1e9, 0, "auto"):
        zero = {"stage": 3, "stage3_max_reuse_distance": limit}
        path = write(folder, train_micro_batch_size_per_gpu=2, gradient_accumulation_steps=4, zero_optimization=zero)
        told = account(ds_accum, path, "--world-size", "8", "--model", "gpt-125m", "--seq-len", "1024")
        gathers.append(told["stages"][3]["parameter_gathers"])
    assert gathers == [4, 8, 4]


def test_an_option_counts_in_place_of_the_config(ds_accum: Any, folder: Path) -> None:
    path = write(folder, train_micro_batch_size_per_gpu=2, gradient_accumulation_steps=4)
    told = account(ds_accum, path, "--world-size", "8", "--accumulation", "16", "--dtype", "fp16", "--parameters", "10")
    assert told["ledger"]["global_batch_size"] == 2 * 8 * 16
    assert told["stages"][0]["transfers"][0]["bytes_each"] == 20


def test_auto_is_filled_in_from_trainers_arguments(ds_accum: Any, folder: Path) -> None:
    path = write(
        folder,
        train_batch_size="auto",
        train_micro_batch_size_per_gpu="auto",
        gradient_accumulation_steps="auto",
    )
    arguments = ("--hf-arg", "per_device_train_batch_size=3", "--hf-arg", "gradient_accumulation_steps=5")
    assert account(ds_accum, path, "--world-size", "2", *arguments)["ledger"]["global_batch_size"] == 30
    finished = ds_accum("ledger", path, "--world-size", "2")
    assert finished.code == 2
    assert 'error: gradient_accumulation_steps is "auto", which Trainer fills in' in finished.errors
    assert "--hf-args" in finished.errors


def test_sequence_parallel_of_a_config_divides_the_world(ds_accum: Any, folder: Path) -> None:
    path = write(folder, train_micro_batch_size_per_gpu=2, sequence_parallel_size=4)
    told = account(ds_accum, path, "--world-size", "8", "--parameters", "100")
    assert (told["ledger"]["data_parallel_size"], told["layout"]["replica_size"]) == (2, 8)
    # In float32, as DeepSpeed reduces under sequence parallel.
    assert told["stages"][0]["transfers"][0]["bytes_each"] == 400


@pytest.mark.parametrize("path", sorted((REPOSITORY / "configs").glob("*.json")), ids=lambda path: path.stem)
def test_every_shipped_config_has_an_account(ds_accum: Any, path: Path) -> None:
    told = account(ds_accum, path, "--world-size", "8", "--model", "gpt-125m", "--seq-len", "1024", "--tokens", "1B")
    ledger = told["ledger"]
    sizes = ("micro_batch_size", "data_parallel_size", "gradient_accumulation_steps")
    product = 1
    for name in sizes:
        product *= ledger[name]
    assert ledger["global_batch_size"] == product
    assert told["zero_stage"] in range(4)


def test_a_scheduler_that_counts_micro_batches_is_noticed(ds_accum: Any, folder: Path) -> None:
    path = write(
        folder,
        train_micro_batch_size_per_gpu=2,
        gradient_accumulation_steps=4,
        scheduler={"type": "WarmupDecayLR", "params": {"total_num_steps": 4000, "warmup_num_steps": 10}},
    )
    told = account(ds_accum, path, "--world-size", "8", "--steps", "1000", "--warmup-steps", "20")
    assert told["notes"] == [
        "the config's total_num_steps is 4000, and the training comes to 1000: it counts micro-batches",
        "the config's warmup_num_steps is 10, and the training comes to 20",
    ]
    assert "it counts micro-batches" in flat(text(ds_accum, path, "--world-size", "8", "--steps", "1000"))


# --------------------------------------------------------------------------------------------------------------- length


def test_the_length_of_gpt_3(ds_accum: Any) -> None:
    arguments = ("--global-batch", "1536", "--micro-batch", "1", "--world-size", "64", "--seq-len", "2048")
    told = account(ds_accum, *arguments, "--tokens", "300B", "--warmup-tokens", "375M")["length"]
    assert (told["total_steps"], told["warmup_steps"]) == (95_368, 120)
    assert "24 times too long" in flat(text(ds_accum, *arguments, "--tokens", "300B"))


def test_epochs_and_what_they_leave_over(ds_accum: Any) -> None:
    told = account(ds_accum, *SMALL, "--samples", "10000", "--epochs", "3", "--warmup-ratio", "0.03")
    assert (told["epoch"]["micro_batches"], told["epoch"]["left_over_micro_batches"]) == (313, 1)
    assert (told["length"]["total_steps"], told["length"]["warmup_steps"]) == (234, 8)
    assert "micro-batches left over" in text(ds_accum, *SMALL, "--samples", "10000")
    dropped = account(ds_accum, *SMALL, "--samples", "10000", "--drop-last")
    assert dropped["epoch"]["left_over_micro_batches"] == 0


# --------------------------------------------------------------------------------------------------------------- splits


def test_splits_side_by_side_are_the_batch_where_nothing_else_is(ds_accum: Any) -> None:
    told = account(ds_accum, "--vary", "4x8x4,8x16x1", "--seq-len", "2048")
    assert told["ledger"]["micro_batch_size"] == 4
    assert [split["world_size"] for split in told["splits"]] == [8, 16]
    assert {split["tokens_per_step"] for split in told["splits"]} == {262_144}
    output = text(ds_accum, "--vary", "4x8x4,8x16x1", "--samples", "10000")
    assert "4x8x4       8           1/1/4/4        4     4 (32)  0, 8, 16, 24" in output
    assert "8x16x1     16           1/1/1/1        1    8 (128)  0, 16, 32, ... 112" in output
    assert "The end of an epoch differs" in output


def test_all_splits_of_a_world_and_of_any(ds_accum: Any) -> None:
    told = account(ds_accum, "--global-batch", "32", "--micro-batch", "1", "--world-size", "8", "--vary", "all")
    assert [split["ledger"]["micro_batch_size"] for split in told["splits"]] == [1, 2, 4]
    told = account(ds_accum, "--global-batch", "4", "--micro-batch", "1", "--world-size", "2", "--vary", "any")
    assert len(told["splits"]) == 6


def test_the_batch_stands_beside_the_splits_that_it_is_not_among(ds_accum: Any) -> None:
    told = account(ds_accum, *SMALL, "--vary", "8x16x1")
    assert [split["ledger"]["micro_batch_size"] for split in told["splits"]] == [4, 8]


def test_splits_of_a_known_model_show_bytes_and_memory(ds_accum: Any) -> None:
    arguments = ("--vary", "1x4x8,4x4x2", "--model", "gpt-125m", "--seq-len", "1024")
    first, second = account(ds_accum, *arguments)["splits"]
    for one, other in zip(first["stages"], second["stages"], strict=True):
        assert one["peak_bytes"] < other["peak_bytes"]
        assert one["sent_bytes"] >= other["sent_bytes"]
    assert "Memory of a rank at its fullest moment" in text(ds_accum, *arguments)


# -------------------------------------------------------------------------------------------------------------- experts


def test_the_accumulation_that_brings_the_spread_under_a_value(ds_accum: Any) -> None:
    arguments = ("--micro-batch", "1", "--accumulation", "8", "--world-size", "8", "--ep", "4", "--seq-len", "4096")
    experts = ("--experts", "64", "--top-k", "2", "--max-spread", "0.01")
    assert account(ds_accum, *arguments, *experts)["experts"]["needed_accumulation"] == 10
    assert "Accumulation 10 brings the spread to 1 % or less." in text(ds_accum, *arguments, *experts)
    output = text(ds_accum, *arguments, *experts, "--routing", "zipf:1.0")
    assert "Accumulation can't mend the router" in output
    assert "No accumulation brings the spread to 1 %" in output


def test_a_model_brings_its_experts(ds_accum: Any) -> None:
    told = account(
        ds_accum,
        *("--micro-batch", "1", "--world-size", "16", "--ep", "8", "--model", "mixtral-8x7b", "--seq-len", "4096"),
    )
    assert (told["experts"]["routing"]["num_experts"], told["experts"]["routing"]["experts_per_token"]) == (8, 2)
    assert {transfer["group"] for transfer in told["layer_transfers"]} == {"expert"}
    assert {transfer["group"] for transfer in told["stages"][0]["transfers"]} == {"data", "expert data"}


# --------------------------------------------------------------------------------------------------------------- report


@pytest.mark.parametrize("form", ["text", "json", "md", "html"])
def test_the_report_is_written_to_a_file(ds_accum: Any, folder: Path, form: str) -> None:
    path = folder / "report"
    arguments = (*SMALL, "--model", "llama-2-7b", "--seq-len", "4096", "--vary", "8x16x1", "--experts", "8")
    finished = ds_accum("ledger", *arguments, "--format", form, "--output-file", path)
    assert (finished.code, finished.output, finished.errors) == (0, "", "")
    written = path.read_text("utf-8")
    assert "128" in written
    assert written == ds_accum("ledger", *arguments, "--format", form).output


def test_the_help_says_what_there_is(ds_accum: Any) -> None:
    finished = ds_accum("ledger", "--help")
    assert finished.code == 0
    assert "--vary" in finished.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "how many ranks see different samples is not known"),
        (("--world-size", "8"), "neither global batch nor micro batch is given"),
        (("--micro-batch", "2", "--accumulation", "4"), "how many ranks see different samples is not known"),
        (("--micro-batch", "0"), "must be at least 1, not 0"),
        (("--micro-batch", "2.5"), "'2.5' is not a valid integer"),
        (
            ("--global-batch", "100", "--micro-batch", "3", "--world-size", "8"),
            "global batch 100 is not a multiple of micro batch 3 x data parallel 8 = 24 (remainder 4); nearest: 96, 120",
        ),
        (
            ("--global-batch", "100", "--micro-batch", "3", "--accumulation", "2"),
            "global batch 100 is not micro batch 3 x data parallel 1 x accumulation 2 = 6",
        ),
        (("--micro-batch", "1", "--world-size", "8", "--tp", "3"), "world 8 is not a multiple of tensor 3"),
        (("--micro-batch", "1", "--world-size", "8,16"), "2 world sizes are given, and this is about one"),
        (("--micro-batch", "1", "--world-size", "8", "--data-parallel", "4"), "--data-parallel 4 contradicts world 8"),
        (("--micro-batch", "9" * 30, "--world-size", "8"), "is beyond 10^12"),
        (("--micro-batch", "9" * 30, "--data-parallel", "9" * 30), "is beyond 10^12"),
        ((*SMALL, "--parameters", "nan"), "--parameters 'nan' is no number"),
        ((*SMALL, "--parameters", "0"), "--parameters must be at least 1, not '0'"),
        ((*SMALL, "--parameters", "7B", "--model", "llama-2-7b"), "--model says how many parameters there are"),
        ((*SMALL, "--model", "llama-9"), "there is no model llama-9"),
        ((*SMALL, "--seq-len", "30", "--cp", "4", "--model", "llama-2-7b"), "sequence length 30 is not a multiple"),
        ((*SMALL, "--seq-len", "1" + "0" * 30), "is beyond 10^12"),
        ((*SMALL, "--epochs", "3"), "--epochs says nothing without --samples"),
        ((*SMALL, "--drop-last"), "--drop-last says nothing without --samples"),
        ((*SMALL, "--tokens", "5"), "a token budget needs a sequence length"),
        ((*SMALL, "--steps", "5", "--tokens", "5"), "--tokens and --steps both say how long the training is"),
        ((*SMALL, "--steps", "5", "--samples", "9", "--epochs", "2"), "--epochs and --steps both say"),
        ((*SMALL, "--warmup-steps", "5"), "a warmup is a part of a training"),
        ((*SMALL, "--steps", "5", "--warmup-steps", "9"), "the warmup of 9 optimizer steps is longer"),
        ((*SMALL, "--steps", "5", "--warmup-ratio", "nan"), "--warmup-ratio 'nan' is no number above 0"),
        ((*SMALL, "--steps", "5", "--warmup-steps", "1", "--warmup-tokens", "1"), "a warmup is given in one unit"),
        ((*SMALL, "--vary", "8x8x4"), "8x8x4 is a global batch of 256 samples, and 4x8x4 of 128"),
        ((*SMALL, "--vary", "what"), "'what' is no split"),
        ((*SMALL, "--top-k", "2"), "--top-k says nothing without --experts"),
        ((*SMALL, "--experts", "8"), "the tokens of an expert need a sequence length"),
        ((*SMALL, "--experts", "8", "--top-k", "9", "--seq-len", "8"), "a token can't go to 9 of 8 experts"),
        (
            (*SMALL, "--experts", "7", "--ep", "4", "--seq-len", "8"),
            "7 experts are not a multiple of expert parallel 4",
        ),
        ((*SMALL, "--experts", "8", "--routing", "best", "--seq-len", "8"), "there is no routing 'best'"),
        ((*SMALL, "--experts", "8", "--max-spread", "-1", "--seq-len", "8"), "'-1' is no number above 0"),
        ((*SMALL, "--experts", "4", "--model", "mixtral-8x7b", "--seq-len", "8"), "contradicts --model with 8"),
        (("missing.json", "--world-size", "8"), "can't read config missing.json"),
        ((".", "--world-size", "8"), "can't read config ."),
    ],
)
def test_a_wrong_call_is_one_sentence(ds_accum: Any, folder: Path, arguments: tuple[str, ...], message: str) -> None:
    assert folder.exists()
    finished = ds_accum("ledger", *arguments)
    assert (finished.code, finished.output) == (2, "")
    assert message in finished.errors
    assert finished.errors.startswith("error: ")
    assert "bug of ds-accum" not in finished.errors


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        '{"train_batch_size": "many"}',
        '{"train_batch_size": -4}',
        '{"train_batch_size": 1e400}',
        '{"train_batch_size": NaN}',
        '{"train_micro_batch_size_per_gpu": 2.5}',
        '{"train_micro_batch_size_per_gpu": 2, "sequence_parallel_size": "two"}',
        '{"train_micro_batch_size_per_gpu": 2, "sequence_parallel_size": 0}',
        '{"train_micro_batch_size_per_gpu": 2, "sequence_parallel_size": 3}',
        '{"train_micro_batch_size_per_gpu": 1' + "0" * 400 + "}",
        "\x00",
    ],
)
def test_a_config_without_an_account_is_one_sentence(ds_accum: Any, folder: Path, content: str) -> None:
    path = folder / "broken.json"
    path.write_text(content, encoding="utf-8")
    finished = ds_accum("ledger", path.name, "--world-size", "8")
    assert finished.code == 2, finished.output
    assert finished.output == ""
    assert finished.errors.startswith("error: ")
    assert "bug of ds-accum" not in finished.errors
    assert len(finished.errors) < 1000


@pytest.mark.parametrize(
    "values",
    [
        {"zero_optimization": 3, "bf16": True, "scheduler": "none", "ds_accum": []},
        {"zero_optimization": {"stage": "three"}, "communication_data_type": 5, "scheduler": {"params": 7}},
        {"zero_optimization": {"stage": True}, "bf16": {"enabled": "auto"}},
        {"scheduler": {"params": {"total_num_steps": "auto", "warmup_num_steps": 1e9}}},
    ],
)
def test_what_is_malformed_beside_the_batch_says_nothing(ds_accum: Any, folder: Path, values: dict[str, Any]) -> None:
    path = write(folder, train_micro_batch_size_per_gpu=2, **values)
    told = account(ds_accum, path, "--world-size", "8", "--parameters", "10", "--steps", "3")
    assert told["notes"] == []
    assert told["ledger"]["global_batch_size"] == 16
