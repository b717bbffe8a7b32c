"""Training loops at the edge: each is weighed rightly, or refused before anything is accumulated.

With a term of the micro-batch beside the mean over its tokens, the step is the gradient of

    sum over micro-batches of tokens x (mean loss + term), over the tokens of the window
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any

import pytest
from launch import Answer, Job, launch

STAGES = (0, 1, 2, 3)
PRECISIONS = ("fp32", "bf16")
OFFLOADED = {"zero": {"offload_optimizer": {"device": "cpu"}}}
BACKENDS = ("eager", "aot_eager")
COMPILER = shutil.which("c++") or shutil.which("g++")
COMPILED = (3,)
"""Stages at which inductor compiles as well, which takes its time."""
_RECOMPUTED: dict[str, dict[str, Any]] = {
    "plain": {},
    "reentrant": {"recomputed": True},
    "not reentrant": {"recomputed": False},
    **{f"compiled by {backend}": {"compiled": backend} for backend in BACKENDS},
}
_SIMPLE = (
    "counts_that_are_missing_or_wrong",
    "evaluation",
    "num_items_in_batch",
    "sums",
    "adversarial",
    "look_ahead",
    "flushes",
)

Answers = Mapping[str, Answer]


@pytest.fixture(scope="module")
def answers() -> Answers:
    jobs = []

    def add(name: str, function: str, settings: Mapping[str, Any], **more: Any) -> None:
        # A compiler that has much else to do is slow.
        timeout = 240.0 if more.get("compiled") == "inductor" else 60.0
        arguments = {"settings": settings, **more}
        jobs.append(Job(name=name, function=f"edges:{function}", arguments=arguments, timeout=timeout))

    for stage in STAGES:
        for function in _SIMPLE:
            add(f"{function}, ZeRO-{stage}", function, {"stage": stage})
        for how, arguments in _RECOMPUTED.items():
            add(f"{how}, ZeRO-{stage}", "layers", {"stage": stage}, **arguments)
        if COMPILER is not None and stage in COMPILED:
            add(f"compiled by inductor, ZeRO-{stage}", "layers", {"stage": stage}, compiled="inductor")
        add(f"half, ZeRO-{stage}", "half_precision", {"stage": stage, "dtype": "bf16"})
    for stage in (0, 1, 2):
        add(f"auxiliary, ZeRO-{stage}", "auxiliary_loss", {"stage": stage})
        add(f"retained, ZeRO-{stage}", "retained_graph", {"stage": stage})
    for stage in (0, 1):
        add(f"uneven flush, ZeRO-{stage}", "uneven_flush", {"stage": stage})
    for stage in (0, 2):
        add(f"no labels, ZeRO-{stage}", "counts_from_nowhere", _block(stage, {"labels": "targets", "shift": False}))
        add(f"no shift, ZeRO-{stage}", "counts_from_nowhere", _block(stage, {}))
    for stage, how in ((2, "two forwards"), (2, "logits"), (0, "stage 0")):
        add(f"bare, {how}", "bare_backward", {"stage": stage, "accumulation": 2}, how=how)
    for stage in (1, 2, 3):
        for dtype in PRECISIONS:
            for offload in (False, True):
                settings = {"stage": stage, "dtype": dtype, **(OFFLOADED if offload else {})}
                add(f"boundary, ZeRO-{stage} {dtype} {offload}", "reduced_at_the_boundary", settings)
    return launch(jobs)


def _block(stage: int, counting: Mapping[str, Any]) -> dict[str, Any]:
    return {"stage": stage, "block": {"counting": counting}}


# --- counts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", STAGES)
def test_a_count_that_is_missing_or_wrong_is_refused_before_anything_is_accumulated(
    stage: int, answers: Answers
) -> None:
    for found in answers[f"counts_that_are_missing_or_wrong, ZeRO-{stage}"].each():
        messages = (
            "CountError: 2 forwards in training came since the last backward",
            "CountError: num_tokens is -1",
            "CountError: num_tokens is nan",
            "CountError: num_tokens has shape (2,)",
            "CountError: num_tokens is a str",
            "CountError: scale_wrt_gas=False says that the loss is divided by what a whole step holds",
            "CountError: no forward in training came since the last backward",
        )
        assert len(found["raised"]) == len(messages)
        for raised, message in zip(found["raised"], messages, strict=True):
            assert raised.startswith(message)
        assert found["taken in by then"] == 0
        # And the window can still be used.
        assert found["moved"] == pytest.approx(3.0) and found["tokens"] == 2 * 4


@pytest.mark.parametrize("stage", [0, 2])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no labels", 'CountError: the loss has no token count: the batch has no labels "targets"'),
        ("no shift", "whether the loss drops the first label of each sequence is not known for this model"),
    ],
)
def test_a_count_that_is_found_nowhere_can_be_given(name: str, message: str, stage: int, answers: Answers) -> None:
    for found in answers[f"{name}, ZeRO-{stage}"].each():
        assert message in found["raised"] and "engine.backward(loss, num_tokens=n)" in found["raised"]
        assert found["taken in by then"] == 0 and found["moved"] == 4.0


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("two forwards", "CountError: 2 forwards in training came since the last backward"),
        ("logits", "CountError: loss.backward() was called on a loss that is not in the model's output"),
        ("stage 0", "AccumulationError: ZeRO 0 propagates losses back through engine.backward alone"),
    ],
)
def test_a_bare_backward_without_a_count_is_refused(how: str, message: str, answers: Answers) -> None:
    for found in answers[f"bare, {how}"].each():
        assert found["raised"].startswith(message) and "engine.backward(loss, num_tokens=n)" in found["raised"]
        assert found["taken in by then"] == 0


@pytest.mark.parametrize("stage", STAGES)
def test_forwards_in_evaluation_and_without_gradients_leave_no_count(stage: int, answers: Answers) -> None:
    for found in answers[f"evaluation, ZeRO-{stage}"].each():
        assert found == {"moved": pytest.approx(3.0), "tokens": 8}


@pytest.mark.parametrize("stage", STAGES)
def test_what_a_model_divides_by_is_taken_out_again(stage: int, answers: Answers) -> None:
    for found in answers[f"num_items_in_batch, ZeRO-{stage}"].each():
        assert found["moved"] == pytest.approx((1 + 2 + 3 + 10) / 4) and found["tokens"] == 4
        assert found["changed"].startswith("CountError: the model was given num_items_in_batch, and the loss is not")


# --- losses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", STAGES)
def test_a_loss_in_half_precision_warns_once_and_says_by_how_much(stage: int, answers: Answers) -> None:
    for found in answers[f"half, ZeRO-{stage}"].each():
        assert found["returned"] == "torch.bfloat16"  # as DeepSpeed's own
        assert len(found["warnings"]) == 1 and "rounded by up to 0.39%" in found["warnings"][0]
        assert found["moved"] == pytest.approx(3 * 3.0, rel=0.02)


@pytest.mark.parametrize("stage", STAGES)
def test_a_sum_may_say_that_nothing_divides_it(stage: int, answers: Answers) -> None:
    for found in answers[f"sums, ZeRO-{stage}"].each():
        assert found == pytest.approx(3.0)


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_a_term_beside_the_mean_is_weighed_by_the_tokens_of_its_micro_batch(stage: int, answers: Answers) -> None:
    tokens, means, terms = (3, 1, 3, 1), (2.0, 6.0, 2.0, 6.0), (8.0, 2.0, 4.0, 6.0)
    true = sum(n * (mean + term) for n, mean, term in zip(tokens, means, terms, strict=True)) / sum(tokens)
    for found in answers[f"auxiliary, ZeRO-{stage}"].each():
        assert found["moved"] == pytest.approx(true)


@pytest.mark.parametrize("stage", STAGES)
def test_adversaries_pass_their_counts(stage: int, answers: Answers) -> None:
    for found in answers[f"adversarial, ZeRO-{stage}"].each():
        assert found["without"].startswith("CountError: 2 forwards in training came since the last backward")
        assert found["discriminator"] == pytest.approx(1.0 + 3.0)
        assert found["generator"] == pytest.approx(2.0 * 3.0)


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_a_graph_that_is_kept_can_be_propagated_back_twice(stage: int, answers: Answers) -> None:
    for found in answers[f"retained, ZeRO-{stage}"].each():
        assert found == {"moved": pytest.approx(3.0), "tokens": 8}


# --- models -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [how for how in _RECOMPUTED if how != "plain"])
@pytest.mark.parametrize("stage", STAGES)
def test_a_model_that_is_recomputed_or_compiled_takes_the_same_steps(stage: int, how: str, answers: Answers) -> None:
    plain = answers["plain, ZeRO-0"].value()["parameters"]
    for found in answers[f"{how}, ZeRO-{stage}"].each():
        assert found["parameters"] == pytest.approx(plain, rel=1e-5, abs=1e-6)
        assert found["compiled"] == how.startswith("compiled")


@pytest.mark.skipif(COMPILER is None, reason="inductor needs a C++ compiler")
@pytest.mark.parametrize("stage", COMPILED)
def test_a_model_that_inductor_compiles_takes_the_same_steps(stage: int, answers: Answers) -> None:
    plain = answers["plain, ZeRO-0"].value()["parameters"]
    for found in answers[f"compiled by inductor, ZeRO-{stage}"].each():
        assert found["parameters"] == pytest.approx(plain, rel=1e-5, abs=1e-6) and found["compiled"]


# --- windows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", STAGES)
def test_a_window_declared_wrongly_warns_and_is_exact_all_the_same(stage: int, answers: Answers) -> None:
    for found in answers[f"look_ahead, ZeRO-{stage}"].each():
        assert found["moved"] == pytest.approx([3.0, 3.0])
        assert found["warnings"] == [
            "begin_window declared 10 tokens over all ranks, but 8 came; the step is exact all the same"
        ]


@pytest.mark.parametrize("stage", STAGES)
def test_a_window_is_declared_once_and_before_it_begins(stage: int, answers: Answers) -> None:
    for found in answers[f"look_ahead, ZeRO-{stage}"].each():
        assert found["twice"].startswith(
            "AccumulationError: begin_window was called twice before the first micro-batch"
        )
        assert found["middle"].startswith("AccumulationError: begin_window came after 1 micro-batches of the window")


@pytest.mark.parametrize("stage", STAGES)
def test_a_flush_applies_what_there_is_and_says_whether_there_was_anything(stage: int, answers: Answers) -> None:
    for found in answers[f"flushes, ZeRO-{stage}"].each():
        assert (found["nothing"], found["part"], found["nothing again"]) == (False, True, False)
        assert found["moved"] == pytest.approx(2.0) and found["steps"] == 1


@pytest.mark.parametrize("stage", [0, 1])
def test_a_flush_with_different_numbers_of_micro_batches_raises_on_every_rank(stage: int, answers: Answers) -> None:
    for found in answers[f"uneven flush, ZeRO-{stage}"].each():
        assert found["raised"].startswith(
            "UnevenMicroBatchesError: ranks have different numbers of micro-batches in step 1: 1 on rank 1, 2 on rank 0"
        )
        assert found["moved"] == 0.0


@pytest.mark.parametrize("offload", [False, True], ids=["", "offloaded"])
@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_reductions_held_back_to_the_boundary_change_no_step(
    stage: int, dtype: str, offload: bool, answers: Answers
) -> None:
    whole, flushed = (6 + 6 + 2 + 6 + 10 + 2) / 10, (6 + 6 + 6 + 10) / 8
    for found in answers[f"boundary, ZeRO-{stage} {dtype} {offload}"].each():
        assert found["moved"] == pytest.approx([whole, whole, flushed], rel=1e-2 if dtype == "bf16" else 1e-6)
        assert found["norms"] == pytest.approx([2 * whole, 2 * whole, 2 * flushed], rel=1e-2)
        assert found["reductions"] == [1, 1, 1]
