"""What "auto" becomes, where its value comes from, and what is left open."""

from __future__ import annotations

from typing import Any

from ds_accum.config.document import Syntax, read_text
from ds_accum.config.embedded import find_configs
from ds_accum.config.huggingface import fill_in, find_mismatches
from ds_accum.config.launch import Launch
from ds_accum.config.training_arguments import TrainingArguments
from ds_accum.lint import lint_text

AUTO_BATCH = dict.fromkeys(("train_batch_size", "train_micro_batch_size_per_gpu"), "auto")


def test_without_arguments_auto_is_left_out_and_the_file_is_not_touched() -> None:
    values: dict[str, Any] = {"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}
    filled = fill_in(values, None, 8)
    assert filled.values == {"bf16": {}, "zero_optimization": {"stage": 2}}
    assert filled.open == {("bf16", "enabled")} and not filled.sources
    assert values["bf16"] == {"enabled": "auto"}


def test_a_value_that_is_filled_in_says_where_it_comes_from() -> None:
    arguments = TrainingArguments.of({"per_device_train_batch_size": 2, "fp16_full_eval": True})
    filled = fill_in({**AUTO_BATCH, "fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}}, arguments, 4)
    assert filled.values == {
        "train_batch_size": 8,
        "train_micro_batch_size_per_gpu": 2,
        "fp16": {"enabled": True},
        "bf16": {"enabled": False},
        "gradient_accumulation_steps": 1,
    }
    assert filled.sources == {
        ("train_batch_size",): "4 ranks x per_device_train_batch_size x gradient_accumulation_steps",
        ("train_micro_batch_size_per_gpu",): "per_device_train_batch_size of --hf-args",
        ("fp16", "enabled"): "fp16_full_eval of --hf-args",
        ("bf16", "enabled"): "the default of bf16",
        ("gradient_accumulation_steps",): "Accelerate's value where the key is missing",
    }
    assert not filled.open


def test_without_a_world_size_only_the_product_is_left_open() -> None:
    filled = fill_in(AUTO_BATCH, TrainingArguments.of({"bf16": True}), None)
    assert filled.values["train_micro_batch_size_per_gpu"] == 8
    assert filled.open == {("train_batch_size",)}


def test_what_only_the_model_or_the_length_of_the_training_tells_is_left_open() -> None:
    values = {
        "zero_optimization": {"reduce_bucket_size": "auto"},
        "scheduler": {"params": {"total_num_steps": "auto", "warmup_num_steps": "auto"}},
    }
    arguments = TrainingArguments.of({"warmup_steps": 0.1})
    assert len(fill_in(values, arguments, 1).open) == 3
    arguments = TrainingArguments.of({"warmup_steps": 0.1, "max_steps": 1001})
    filled = fill_in(values, arguments, 1)
    assert filled.open == {("zero_optimization", "reduce_bucket_size")}
    assert filled.values["scheduler"]["params"] == {"total_num_steps": 1001, "warmup_num_steps": 101}


def test_an_argument_that_nobody_can_tell_is_neither_filled_in_nor_compared() -> None:
    arguments = TrainingArguments.of({"bf16": "auto"})
    assert fill_in({"bf16": {"enabled": "auto"}}, arguments, 1).open == {("bf16", "enabled")}
    assert not list(find_mismatches({"bf16": {"enabled": True}}, arguments, 1))


def test_a_number_in_quotes_is_not_the_number() -> None:
    (mismatch,) = find_mismatches(
        {"gradient_accumulation_steps": "8"}, TrainingArguments.of({"gradient_accumulation_steps": 8}), 1
    )
    assert (mismatch.value, mismatch.expected) == ("8", 8)


def test_blocks_that_are_no_objects_are_passed_over() -> None:
    values = {"optimizer": "AdamW", "bf16": "auto", "scheduler": {"params": []}}
    arguments = TrainingArguments.of({"bf16": True})
    assert fill_in(values, arguments, 1).values["optimizer"] == "AdamW"
    assert not list(find_mismatches(values, arguments, 1))


# ------------------------------------------------------------------------------------------------------- in a document


def test_every_rule_sees_what_was_filled_in_and_points_at_its_auto() -> None:
    text = '{\n  "train_micro_batch_size_per_gpu": "auto",\n  "fp16": {"enabled": "auto"},\n  "bf16": {"enabled": "auto"}\n}'
    launch = Launch(hf_arguments=TrainingArguments.of({"fp16": True, "bf16": True}))
    (found,) = (item for item in lint_text(text, launches=[launch]) if item.code == "DSA301")
    assert found.start.line == 4
    assert found.message == (
        "bf16.enabled is true, and so is fp16.enabled (line 3, from fp16 of --hf-args), but a model has one precision"
    )


def test_an_accumulation_that_accelerate_adds_is_named_in_the_equation() -> None:
    text = '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": 2, "gradient_clipping": "auto"}'
    arguments = TrainingArguments.of({"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4})
    found = lint_text(text, launches=[Launch(world_size=2, hf_arguments=arguments)])
    assert [item.message for item in found if item.code == "DSA101"] == [
        (
            "train_batch_size 16 (line 1, from 2 ranks x per_device_train_batch_size x gradient_accumulation_steps) is not"
            " micro batch 2 (line 1) x accumulation 1 (Accelerate's value where the key is missing)"
            " x data parallel 2 (the world size) = 4"
        )
    ]


ACCELERATE = """
distributed_type: DEEPSPEED
deepspeed_config:
  zero_stage: 2
  gradient_accumulation_steps: 4
"""


def test_what_an_accelerate_file_leaves_out_is_filled_in_and_the_rest_compared() -> None:
    document = read_text(ACCELERATE, syntax=Syntax.YAML)
    launch = Launch(world_size=2, hf_arguments=TrainingArguments.of({"max_grad_norm": 0.5}))
    (embedded,) = find_configs(document, launch)
    assert embedded.values == {
        "train_batch_size": 16,
        "train_micro_batch_size_per_gpu": 8,
        "gradient_accumulation_steps": 4,
        "gradient_clipping": 0.5,
        "zero_optimization": {"stage": 2},
    }
    found = lint_text(ACCELERATE, filename="a.yaml", launches=[launch])
    assert [(item.path, item.start.line) for item in found if item.code == "DSA810"] == [
        (("gradient_accumulation_steps",), 5)
    ]
