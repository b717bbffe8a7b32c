"""Each optimizer wrapper has its carrier, which takes a factor along for one step and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from launch import Answer, Job, launch

FP16 = {"fp16": {"enabled": True, "initial_scale_power": 8}}
BF16 = {"dtype": "bf16"}
ZERO, WRAPPER, DIVISOR = "loss scale of ZeRO", "current scale of the 16-bit wrapper", "divisor of the reduction"

# The wrapper, its carrier, the optimizer in it, what asks for it, and what losses are scaled by.
_CARRIERS: dict[str, tuple[str, str, str, dict[str, Any], float]] = {
    "torch's own": ("SGD", DIVISOR, "sgd", {}, 1.0),
    "BF16_Optimizer": (
        "BF16_Optimizer",
        DIVISOR,
        "sgd",
        {"stage": 1, **BF16, "data_types": {"grad_accum_dtype": "fp32"}},
        1.0,
    ),
    "unfused bf16": ("FP16_UnfusedOptimizer", WRAPPER, "sgd", BF16, 1.0),
    "unfused fp16": ("FP16_UnfusedOptimizer", WRAPPER, "sgd", FP16, 256.0),
    "fused bf16": ("FP16_Optimizer", WRAPPER, "fused_adam", BF16, 1.0),
    "fused fp16": ("FP16_Optimizer", WRAPPER, "fused_adam", FP16, 256.0),
    **{
        f"ZeRO-{stage} {word}": (
            "DeepSpeedZeroOptimizer_Stage3" if stage == 3 else "DeepSpeedZeroOptimizer",
            ZERO,
            "sgd",
            {"stage": stage, **settings},
            scale,
        )
        for stage in (1, 2, 3)
        for word, settings, scale in (("fp32", {}, 1.0), ("bf16", BF16, 1.0), ("fp16", FP16, 256.0))
    },
}


@pytest.fixture(scope="module")
def answers() -> Mapping[str, Answer]:
    return launch(
        Job(
            name=name,
            function="carrying:contexts",
            arguments={"optimizer": optimizer, "settings": settings},
            ranks=1,
        )
        for name, (_, _, optimizer, settings, _) in _CARRIERS.items()
    )


@pytest.mark.parametrize("name", _CARRIERS)
def test_a_wrapper_has_the_carrier_that_it_is_meant_to_have(name: str, answers: Mapping[str, Answer]) -> None:
    found = answers[name].value()
    kind, carrier, _, _, scale = _CARRIERS[name]
    assert (found["kind"], found["name"], found["scale"]) == (kind, carrier, scale)
    assert found["at the reduction"] == (carrier == DIVISOR)


@pytest.mark.parametrize("name", _CARRIERS)
def test_what_a_carrier_changes_is_afterwards_what_it_was(name: str, answers: Mapping[str, Answer]) -> None:
    found = answers[name].value()
    assert found["left"] == [[], []]
    carries, skips = found["changed"]
    assert carries == (_CARRIERS[name][1] != DIVISOR) and skips


@pytest.mark.parametrize("name", _CARRIERS)
def test_a_factor_divides_the_scale_of_one_step_and_a_skip_keeps_it(name: str, answers: Mapping[str, Answer]) -> None:
    found = answers[name].value()
    scale = _CARRIERS[name][4]
    assert found["scales inside"] == [scale if _CARRIERS[name][1] == DIVISOR else scale / 4, scale]
