"""Finding the DeepSpeed config in a document of another tool."""

from __future__ import annotations

from typing import Any

from ds_accum.config.document import Document, Syntax, read_text
from ds_accum.config.embedded import (
    EmbeddedConfig,
    find_configs,
    looks_like_deepspeed,
    number_of_processes,
    referenced_file,
)
from ds_accum.config.launch import Framework, Launch

ACCELERATE = """
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
num_processes: 4
deepspeed_config:
  zero_stage: 3
  gradient_accumulation_steps: 2
  offload_optimizer_device: cpu
  offload_param_device: none
  zero3_init_flag: true
"""


def document(text: str) -> Document:
    syntax = Syntax.HJSON if text.lstrip().startswith(("{", "[")) else Syntax.YAML
    return read_text(text, syntax=syntax)


def only_config(text: str, framework: Framework | None = None) -> EmbeddedConfig:
    (config,) = find_configs(document(text), Launch(framework=framework))
    return config


def test_a_plain_config_is_the_whole_document() -> None:
    config = only_config('{"train_batch_size": 8}')
    assert config.values == {"train_batch_size": 8}
    assert config.framework is None
    assert config.locate(("train_batch_size",)) == ("train_batch_size",)


def test_auto_where_hugging_face_fills_it_in_tells_the_framework_and_is_left_out() -> None:
    text = (
        '{"train_batch_size": "auto", "bf16": {"enabled": "auto", "check_grad_overflow": true}, "steps_per_print": 5}'
    )
    config = only_config(text)
    assert config.framework == "huggingface"
    assert config.values == {"bf16": {"check_grad_overflow": True}, "steps_per_print": 5}
    assert config.filled_in == {("train_batch_size",), ("bf16", "enabled")}


def test_the_document_itself_is_not_changed_by_leaving_auto_out() -> None:
    read = document('{"bf16": {"enabled": "auto"}}')
    list(find_configs(read, Launch()))
    assert read.value == {"bf16": {"enabled": "auto"}}


def test_in_a_raw_launch_auto_stays() -> None:
    assert only_config('{"train_batch_size": "auto"}', "raw").values == {"train_batch_size": "auto"}


def test_auto_that_nobody_fills_in_stays_and_tells_nothing() -> None:
    config = only_config('{"train_batch_size": 8, "communication_data_type": "auto"}')
    assert config.framework is None
    assert config.values["communication_data_type"] == "auto"


def test_accelerates_own_names_become_deepspeeds_and_keep_their_places() -> None:
    config = only_config(ACCELERATE)
    assert config.values == {
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
        "gradient_accumulation_steps": 2,
    }
    assert config.framework == "accelerate"
    assert config.locate(("zero_optimization", "stage")) == ("deepspeed_config", "zero_stage")
    assert config.locate(("zero_optimization",)) == ("deepspeed_config", "zero_optimization")


def test_accelerate_says_how_many_ranks_it_launches() -> None:
    assert number_of_processes(document(ACCELERATE)) == 4
    assert number_of_processes(document('{"num_processes": 4}')) is None


def test_accelerate_may_name_the_config_instead() -> None:
    text = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ds/zero2.json\n"
    assert referenced_file(document(text)) == "ds/zero2.json"
    assert list(find_configs(document(text), Launch())) == []
    assert referenced_file(document(ACCELERATE)) is None


def test_gpt_neox_keys_are_known_with_hyphens_too() -> None:
    text = "pipe-parallel-size: 1\nnum-layers: 12\ntrain-micro-batch-size-per-gpu: 4\nzero_optimization: {stage: 1}\n"
    config = only_config(text)
    assert config.values == {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1}}
    assert config.framework == "gpt-neox"
    assert config.locate(("train_micro_batch_size_per_gpu",)) == ("train-micro-batch-size-per-gpu",)


def test_a_document_without_a_mapping_holds_no_config() -> None:
    for text in ("[1, 2]", "just words", ""):
        assert list(find_configs(document(text), Launch())) == []


def test_a_folders_files_are_picked_by_what_they_hold() -> None:
    cases: dict[str, Any] = {
        '{"train_batch_size": 8}': True,
        '{"zero_optimization": {"stage": 2}}': True,
        ACCELERATE: True,
        "num-layers: 12\ntrain-micro-batch-size-per-gpu: 4\n": True,
        '{"name": "package", "version": "1.0"}': False,
        '{"optimizer": "adam"}': False,
        "[]": False,
    }
    for text, expected in cases.items():
        assert looks_like_deepspeed(document(text)) is expected, text
