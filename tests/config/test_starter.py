"""What a fresh config says, and what it refuses to say."""

from __future__ import annotations

from typing import Any

import pytest

from ds_accum.batch import ParallelLayout
from ds_accum.config.starter import Starter
from ds_accum.errors import BatchError, UsageError

LAYOUT = ParallelLayout(world_size=8)


def config(**wishes: Any) -> dict[str, Any]:
    return Starter(**{"stage": 2, "layout": LAYOUT, **wishes}).config()


def test_a_global_batch_is_kept_and_the_accumulation_left_to_be_derived() -> None:
    starter = Starter(stage=2, layout=LAYOUT, global_batch_size=256, micro_batch_size=4)
    assert starter.ledger().gradient_accumulation_steps == 8
    written = starter.config()
    assert (written["train_batch_size"], written["train_micro_batch_size_per_gpu"]) == (256, 4)
    assert "gradient_accumulation_steps" not in written


def test_without_a_global_batch_the_other_two_are_written() -> None:
    written = config(micro_batch_size=4, gradient_accumulation_steps=2)
    assert (written["train_micro_batch_size_per_gpu"], written["gradient_accumulation_steps"]) == (4, 2)
    assert "train_batch_size" not in written


def test_without_any_size_the_batch_is_one_sample_a_rank() -> None:
    assert Starter(stage=0, layout=LAYOUT).ledger().global_batch_size == 8


def test_an_uneven_batch_is_refused_with_the_equation() -> None:
    with pytest.raises(BatchError, match="global batch 100 is not a multiple of data parallel 8"):
        config(global_batch_size=100)


def test_only_data_parallel_ranks_multiply_the_batch() -> None:
    layout = ParallelLayout(world_size=8, tensor_parallel_size=2, pipeline_parallel_size=2)
    starter = Starter(stage=1, layout=layout, global_batch_size=64, micro_batch_size=4)
    assert starter.ledger().gradient_accumulation_steps == 8


@pytest.mark.parametrize(
    ("stage", "precision"), [(0, "bf16"), *((stage, word) for stage in (1, 2, 3) for word in ("bf16", "fp16"))]
)
def test_half_precision_gradients_are_reduced_and_where_zero_can_added_up_in_fp32(stage: int, precision: Any) -> None:
    written = config(stage=stage, precision=precision)
    assert written["communication_data_type"] == "fp32"
    assert written.get("data_types") == (None if stage == 0 else {"grad_accum_dtype": "fp32"})


def test_clipping_is_always_named() -> None:
    assert config()["gradient_clipping"] == 1.0
    assert config(gradient_clipping=0.0)["gradient_clipping"] == 0.0
    assert config(huggingface=True)["gradient_clipping"] == "auto"


def test_for_hugging_face_trainer_fills_in_and_is_told_what() -> None:
    starter = Starter(stage=2, layout=LAYOUT, huggingface=True, global_batch_size=256, micro_batch_size=4)
    written = starter.config()
    assert written["train_batch_size"] == written["gradient_accumulation_steps"] == "auto"
    assert written["bf16"] == {"enabled": "auto"}
    assert "optimizer" not in written and "scheduler" not in written
    assert starter.trainer_arguments() == (
        "--per_device_train_batch_size 4 --gradient_accumulation_steps 8 --max_grad_norm 1.0 --learning_rate 0.0001 --bf16"
    )


@pytest.mark.parametrize("total_steps", [1, 2, 40, 1000])
def test_the_warmup_fits_into_the_training(total_steps: int) -> None:
    params = config(total_steps=total_steps)["scheduler"]["params"]
    assert params["warmup_num_steps"] == max(2, total_steps // 20)
    assert params["total_num_steps"] == total_steps


@pytest.mark.parametrize(
    ("wishes", "sentence"),
    [
        ({"stage": 0, "precision": "fp16"}, "a loss scale that the loss was never multiplied by"),
        ({"stage": 0, "offload": "cpu"}, "ZeRO stage 0 offloads nothing"),
        ({"stage": 2, "offload": "nvme", "nvme_path": "/nvme"}, "stage 2 can't offload to NVMe"),
        ({"stage": 3, "offload": "nvme"}, "need each other"),
        ({"stage": 3, "nvme_path": "/nvme"}, "need each other"),
        (
            {"stage": 2, "layout": ParallelLayout(world_size=8, pipeline_parallel_size=2)},
            "pipelines don't run with ZeRO stage 2",
        ),
    ],
)
def test_what_deepspeed_can_not_do_is_refused(wishes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        config(**wishes)
