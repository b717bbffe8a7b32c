"""A step that must not be taken is skipped on every rank alike, as DeepSpeed skips one that overflows.

no counted token in the window          the mean over nothing is no step
a loss that is not finite on any rank   nothing can undo what it did to the gradients
a gradient that is not finite           seen by the norm, where one is taken
fp16 overflow                           DeepSpeed's own: the only one that moves the loss scale
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from launch import Answer, Job, launch

FP16 = {"fp16": {"enabled": True, "initial_scale_power": 8, "loss_scale_window": 1000, "hysteresis": 1}}
PRECISIONS: dict[str, dict[str, Any]] = {"fp32": {}, "bf16": {"bf16": {"enabled": True}}, "fp16": FP16}
OFFLOADED = {"offload_optimizer": {"device": "cpu"}}
IN_FP32 = {"data_types": {"grad_accum_dtype": "fp32"}}

_WRAPPERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "torch's own, clipped": ("SGD", "sgd", {"clipping": 1e-2}),
    "torch's own": ("SGD", "sgd", {}),
    "unfused bf16": ("FP16_UnfusedOptimizer", "sgd", PRECISIONS["bf16"]),
    "unfused fp16": ("FP16_UnfusedOptimizer", "sgd", FP16),
    "fused bf16": ("FP16_Optimizer", "fused_adam", PRECISIONS["bf16"]),
    "fused fp16": ("FP16_Optimizer", "fused_adam", {**FP16, "clipping": 1e-2}),
    "BF16_Optimizer": ("BF16_Optimizer", "sgd", {"stage": 1, **PRECISIONS["bf16"], **IN_FP32}),
    **{
        f"ZeRO-{stage} {dtype}": (
            "DeepSpeedZeroOptimizer_Stage3" if stage == 3 else "DeepSpeedZeroOptimizer",
            "sgd",
            {"stage": stage, **settings},
        )
        for stage in (1, 2, 3)
        for dtype, settings in PRECISIONS.items()
    },
    **{
        f"ZeRO-{stage} {dtype}, optimizer offloaded": (
            "DeepSpeedZeroOptimizer_Stage3" if stage == 3 else "DeepSpeedZeroOptimizer",
            "cpu_adam",
            {"stage": stage, "clipping": 1e-2, "zero": OFFLOADED, **PRECISIONS[dtype]},
        )
        for stage in (1, 2, 3)
        for dtype in ("fp32", "bf16", "fp16")
    },
}
_NO_NORM = "torch's own"
_SKIPPED_BY_LOSS = {
    "nothing counted": "no counted token",
    "infinite loss on rank 1": "non-finite loss",
    "NaN loss on rank 0": "non-finite loss",
    "mean over nothing by hand on rank 1": "non-finite loss",
}
_BY_NORM = "NaN gradient on rank 1"
_RAISING = (
    ("nothing counted", {"on_empty_window": "raise"}, "EmptyWindowError: no rank has a counted token"),
    ("NaN loss on rank 0", {"on_nonfinite": "raise"}, "NonFiniteLossError: a loss of the window is infinite or not"),
    ("mean over nothing by hand on rank 1", {"on_nonfinite": "raise"}, "clamp the denominator"),
    ("NaN loss on rank 0", {"on_empty_window": "raise"}, "nothing"),
    ("nothing counted", {"on_nonfinite": "raise"}, "nothing"),
)

Answers = Mapping[str, Answer]


def _takes_norm(wrapper: str) -> bool:
    return wrapper != _NO_NORM


def _in_fp16(wrapper: str) -> bool:
    return "fp16" in wrapper


def _faults(wrapper: str) -> list[str]:
    return [
        *_SKIPPED_BY_LOSS,
        *([_BY_NORM] if _takes_norm(wrapper) else []),
        *(["overflow"] if _in_fp16(wrapper) else []),
    ]


@pytest.fixture(scope="module")
def answers() -> Answers:
    jobs = []
    for wrapper, (_, optimizer, settings) in _WRAPPERS.items():
        block = {"counting": {"shift": False}, "report_norm": "when_taken"}
        arguments = {"optimizer": optimizer, "settings": {**settings, "block": block}}
        jobs.append(Job(name=wrapper, function="skips:faults", arguments={**arguments, "faults": _faults(wrapper)}))
        if optimizer == "sgd" and "clipping" not in settings:
            jobs.append(Job(name=f"{wrapper}: empty", function="skips:empty_on_one_rank", arguments=arguments))
    for number, (fault, block, _) in enumerate(_RAISING):
        for stage in (0, 2):
            settings = {"stage": stage, "block": {"counting": {"shift": False}, **block}}
            arguments = {"optimizer": "sgd", "settings": settings, "fault": fault}
            jobs.append(Job(name=f"raising {number}, ZeRO-{stage}", function="skips:raising", arguments=arguments))
    arguments = {"optimizer": "sgd", "settings": _WRAPPERS[_NO_NORM][2]}
    jobs.append(Job(name="unseen", function="skips:unseen", arguments=arguments))
    return launch(jobs)


@pytest.mark.parametrize("wrapper", _WRAPPERS)
def test_each_wrapper_is_the_one_it_is_meant_to_be(wrapper: str, answers: Answers) -> None:
    assert answers[wrapper].value()["optimizer"] == _WRAPPERS[wrapper][0]


@pytest.mark.parametrize("fault", _SKIPPED_BY_LOSS)
@pytest.mark.parametrize("wrapper", _WRAPPERS)
def test_a_loss_that_makes_no_step_leaves_everything_as_it_was(wrapper: str, fault: str, answers: Answers) -> None:
    answers[wrapper].value()
    for value in answers[wrapper].values:
        found = value[fault]
        assert not found["applied"] and found["because"] == _SKIPPED_BY_LOSS[fault]
        assert found["norm"] is None
        assert found["untouched"]
        assert found["counted"] == [1, 1]
        assert found["loss scale times"] == 1.0


@pytest.mark.parametrize("wrapper", [wrapper for wrapper in _WRAPPERS if _takes_norm(wrapper)])
def test_a_gradient_that_is_not_finite_is_seen_by_the_norm(wrapper: str, answers: Answers) -> None:
    answers[wrapper].value()
    for value in answers[wrapper].values:
        found = value[_BY_NORM]
        assert not found["applied"]
        assert found["because"] == ("overflow" if _in_fp16(wrapper) else "non-finite gradient")
        assert found["untouched"]
        assert found["counted"] == [1, 1]


@pytest.mark.parametrize("wrapper", [wrapper for wrapper in _WRAPPERS if _in_fp16(wrapper)])
def test_an_overflow_of_fp16_alone_moves_the_loss_scale(wrapper: str, answers: Answers) -> None:
    answers[wrapper].value()
    for value in answers[wrapper].values:
        found = value["overflow"]
        assert found["because"] == "overflow" and found["untouched"]
        assert found["counted"] == [1, 1]
        assert found["loss scale times"] == 0.5


@pytest.mark.parametrize("wrapper", _WRAPPERS)
def test_the_step_after_a_skipped_one_is_what_it_would_have_been(wrapper: str, answers: Answers) -> None:
    found = answers[wrapper].value()
    for fault in _faults(wrapper):
        assert found[fault]["next is applied"]
        assert found[fault]["next is off by"] == 0.0, fault
        # Had the measure not seen parameters, momentum and learning rate, nothing could have been touched.
        assert found[fault]["next moves"].count(True) > 2 * found[fault]["parameters"], fault


@pytest.mark.parametrize(
    "wrapper",
    [name for name, (_, optimizer, settings) in _WRAPPERS.items() if optimizer == "sgd" and "clipping" not in settings],
)
def test_a_rank_over_whose_labels_torch_takes_no_mean_contributes_nothing(wrapper: str, answers: Answers) -> None:
    found = answers[f"{wrapper}: empty"].value()
    assert found["applied"] and found["counted"] == [1, 0]
    assert found["tokens"] == 2
    assert found["loss"] == pytest.approx(found["true loss"], rel=1e-3 if "16" in wrapper else 1e-6)
    assert found["off"] < (2e-3 if "16" in wrapper else 1e-6)


@pytest.mark.parametrize("stage", [0, 2])
@pytest.mark.parametrize("number", range(len(_RAISING)))
def test_a_skipped_step_raises_on_every_rank_where_it_is_asked_to(number: int, stage: int, answers: Answers) -> None:
    answer = answers[f"raising {number}, ZeRO-{stage}"]
    answer.value()
    for value in answer.values:
        assert _RAISING[number][2] in value["raised"]
        # DeepSpeed has finished with the step by then.
        assert (value["skipped"], value["micro_steps"], value["reported"]) == (1, 2, [1, 2, False])
        assert value["as the twin"]


def test_where_nobody_takes_a_norm_the_banner_says_what_is_not_seen(answers: Answers) -> None:
    found = answers["unseen"].value()
    assert not found["finite"] and found["applied"]
    assert "not checked: gradients that are not finite, as no norm is taken" in found["banner"]
