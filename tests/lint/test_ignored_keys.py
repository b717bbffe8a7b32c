"""Every key that DeepSpeed ignores has one kind, and says where its setting belongs."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from ds_accum.config.document import Syntax, read_text
from ds_accum.config.embedded import find_configs
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.ignored_keys import Kind, ignored_keys
from ds_accum.lint.wording import dotted


def kinds(values: dict[str, Any], **launch: Any) -> dict[str, tuple[Kind, str | None]]:
    """By path of the ignored key: its kind, and where it was meant to stand."""
    document, of = read_text(json.dumps(values)), Launch(**launch)
    (config,) = find_configs(document, of)
    return {
        dotted(item.path): (item.kind, None if item.meant is None else dotted(item.meant))
        for item in ignored_keys(LintContext.of(document, config, of))
    }


@pytest.mark.parametrize(
    ("values", "kind", "meant"),
    [
        ({"grad_accum_dtype": "fp32"}, Kind.MISPLACED, "data_types.grad_accum_dtype"),
        ({"gradient_accumulation_dtype": "fp32"}, Kind.MISSPELT, "data_types.grad_accum_dtype"),
        ({"overlap_comm": True}, Kind.MISPLACED, "zero_optimization.overlap_comm"),
        ({"zero_stage": 2}, Kind.MISSPELT, "zero_optimization.stage"),
        ({"optimizer": {"type": "AdamW", "betas": [0.9, 0.95]}}, Kind.MISPLACED, "optimizer.params.betas"),
        (
            {"scheduler": {"type": "WarmupLR", "warmup_num_steps": 9}},
            Kind.MISPLACED,
            "scheduler.params.warmup_num_steps",
        ),
        ({"optimizer": {"type": "AdamW", "wall_clock_breakdown": True}}, Kind.MISPLACED, "wall_clock_breakdown"),
        ({"scheduler": {"type": "WarmupLR", "parms": {}}}, Kind.MISSPELT, "scheduler.params"),
        ({"gas": 8}, Kind.MISSPELT, "gradient_accumulation_steps"),
        ({"clip_grad": 1.0}, Kind.CLIPPING, "gradient_clipping"),
        ({"fp32_allreduce": True}, Kind.OTHER_RELEASE, "communication_data_type"),
        ({"aio": {"thread_count": 2}}, Kind.OTHER_RELEASE, None),
        ({"enabled": True}, Kind.FOREIGN, None),
        ({"num_workers": 4}, Kind.FOREIGN, None),
    ],
)
def test_a_key_has_the_kind_that_its_name_and_place_tell(values: dict[str, Any], kind: Kind, meant: str | None) -> None:
    assert list(kinds(values).values()) == [(kind, meant)]


def test_notes_and_what_is_refused_anyway_are_left_out() -> None:
    notes = {"_stage": 2, "x-stage": 2, "//": "a note", "comment": "", "$schema": "", "ds_accum": {}}
    assert kinds(notes | {"elasticity": {}, "zero_optimization": {"no_such_key": 1}}) == {}


def test_a_key_that_is_no_text_is_left_out() -> None:
    document = read_text("train_batch_size: 8\n~: 1\n2: 3\n", syntax=Syntax.YAML)
    (config,) = find_configs(document, Launch())
    assert ignored_keys(LintContext.of(document, config, Launch())) == ()


def test_a_key_whose_setting_is_there_already_is_only_foreign() -> None:
    assert kinds({"gradient_accumulation_steps": 2, "gradient_acc_steps": 4}) == {
        "gradient_acc_steps": (Kind.FOREIGN, None)
    }
    assert (
        kinds({"overlap_comm": True, "zero_optimization": {"overlap_comm": False}})["overlap_comm"][0] is Kind.FOREIGN
    )


def test_what_hugging_face_fills_in_is_there_already() -> None:
    assert kinds({"train_batch_size": "auto", "train_batch": 8}, framework="huggingface") == {
        "train_batch": (Kind.FOREIGN, None)
    }


def test_only_a_value_of_auto_gets_past_a_validated_block() -> None:
    offload = {"devise": "auto", "no_such_key": "auto", "pin_memori": True}
    assert kinds({"zero_optimization": {"offload_optimizer": offload}}) == {
        "zero_optimization.offload_optimizer.devise": (Kind.MISSPELT, "zero_optimization.offload_optimizer.device"),
        "zero_optimization.offload_optimizer.no_such_key": (Kind.FOREIGN, None),
    }


def test_a_key_of_a_later_release_is_one_of_another_release() -> None:
    found = kinds({"managed_gradient_accumulation": False}, deepspeed_version=(0, 19, 2))
    assert found == {"managed_gradient_accumulation": (Kind.OTHER_RELEASE, None)}


def test_the_arguments_of_gpt_neox_are_foreign_whatever_they_look_like() -> None:
    assert set(kinds({"num-layers": 12, "zero-optimization": {"stage": 1}, "max_grad_norm": 1}).values()) == {
        (Kind.FOREIGN, None)
    }


def test_thousands_of_unknown_keys_take_no_longer_than_reading_them() -> None:
    values = {f"gradient_accumulation_{number:04}": number for number in range(5_000)}
    start = time.process_time()
    assert len(kinds(values)) == 5_000
    assert time.process_time() - start < 2
