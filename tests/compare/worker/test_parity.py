"""Every variant beside the truth, from one launch: token-weighted ones agree with it, means of means visibly don't."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from worker_runs import Launch, launch, variant

from ds_accum.compare.result import Parity
from ds_accum.compare.spec import RunSpec, Variant, Workload

SMALL = Workload(layers=1, width=32, heads=4, vocabulary=64, sequence_length=32)
STEPS = 3
TRUTH = variant("single", micro=16, accumulation=1)
TOKEN = tuple(variant("token", stage) for stage in range(4))
TOKEN_OTHERWISE_CUT = variant("token", 2, name="zero-2 token 1x8", micro=1, accumulation=8)
MEANS = (
    *(variant("stock", stage) for stage in range(4)),
    variant("ddp"),
    variant("ddp-every"),
    variant("fsdp"),
    variant("fsdp-every"),
)
ROUND_ROBIN = variant("token", 2, name="round robin", zero={"round_robin_gradients": True})
# Different keys for the same thing in one config: DeepSpeed refuses it, alike on all ranks.
REFUSED = variant("stock", 2, name="refused", config={"train_batch_size": 17})


def spec_of(*variants: Variant, dtype: str = "fp32", clipping: float = 1.0, **options: object) -> RunSpec:
    return RunSpec(
        world_size=2,
        global_batch_size=16,
        steps=STEPS,
        warmup=1,
        dtype=dtype,  # type: ignore[arg-type]
        gradient_clipping=clipping,
        workload=SMALL,
        variants=variants,
        **options,  # type: ignore[arg-type]
    )


@pytest.fixture(scope="module")
def fp32(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    everything = (TRUTH, *TOKEN, TOKEN_OTHERWISE_CUT, *MEANS, ROUND_ROBIN, REFUSED)
    return launch(tmp_path_factory.mktemp("fp32"), spec_of(*everything))


def parity_of(found: Launch, name: str) -> Parity:
    parity = found.results[name].parity
    assert parity is not None
    assert len(parity.steps) == STEPS
    return parity


@pytest.mark.parametrize("name", [item.name for item in (*TOKEN, TOKEN_OTHERWISE_CUT, ROUND_ROBIN)])
def test_a_token_weighted_variant_is_the_truth_within_rounding(fp32: Launch, name: str) -> None:
    parity, truth = parity_of(fp32, name), parity_of(fp32, TRUTH.name)
    assert parity.largest_error is not None and parity.largest_error <= parity.tolerance
    assert 1e-4 < parity.tolerance < 1.2e-4
    assert parity.first_difference is None
    for step, true in zip(parity.steps, truth.steps, strict=True):
        assert step.loss == pytest.approx(true.loss, rel=1e-6)
        assert step.num_tokens == true.num_tokens
        assert step.grad_norm == pytest.approx(true.grad_norm, rel=1e-5)
        assert step.clip_coefficient == pytest.approx(true.clip_coefficient, rel=1e-5)
        assert step.applied


@pytest.mark.parametrize("name", [item.name for item in MEANS])
def test_a_mean_of_means_leaves_the_truth_at_the_first_step_and_says_where(fp32: Launch, name: str) -> None:
    parity = parity_of(fp32, name)
    assert parity.largest_error is not None and parity.largest_error > 0.1
    first = parity.first_difference
    assert first is not None
    assert first.step == 1
    # All of them are the same training, so they leave it at the same place.
    elsewhere = parity_of(fp32, "ddp").first_difference
    assert elsewhere is not None and first.parameter == elsewhere.parameter
    assert parity.tolerance < first.error <= parity.largest_error


def test_all_means_of_means_are_the_same_training(fp32: Launch) -> None:
    errors = [parity_of(fp32, item.name).steps[-1].update_error for item in MEANS]
    assert max(errors) - min(errors) < 1e-4  # type: ignore[type-var,operator]
    # Before the first update all see the same model, so they report the same true loss.
    losses = {round(parity_of(fp32, item.name).steps[0].loss or 0.0, 5) for item in (TRUTH, *TOKEN, *MEANS)}
    assert len(losses) == 1


def test_the_parameter_that_is_wrong_is_named() -> None:
    torch = pytest.importorskip("torch")
    from ds_accum.compare.worker import parity

    start = {name: torch.zeros(4, dtype=torch.float64) for name in ("a", "b")}
    truth = parity._Truth(initial=start, now={name: value + 1 for name, value in start.items()})
    run = parity._Run(variant=TOKEN[0], engine=None)  # type: ignore[arg-type]
    right = dict(truth.now or {})
    assert parity._compare(run, 0, right, truth, spec_of(TOKEN[0])) == 0.0
    assert run.first_difference is None
    wrong = {**right, "b": right["b"] + torch.tensor([0.0, 0.0, 0.0, 0.5], dtype=torch.float64)}
    error = parity._compare(run, 1, wrong, truth, spec_of(TOKEN[0]))
    # Half of one of eight equal moves.
    assert error == pytest.approx(0.5 / 8**0.5)
    assert run.first_difference is not None
    assert (run.first_difference.step, run.first_difference.parameter) == (2, "b")
    nothing = {**right, "a": right["a"] * float("nan")}
    other = parity._Run(variant=TOKEN[0], engine=None)  # type: ignore[arg-type]
    parity._compare(other, 0, nothing, truth, spec_of(TOKEN[0]))
    assert other.first_difference is not None and other.first_difference.parameter == "a"


def test_the_truth_has_no_error_of_its_own(fp32: Launch) -> None:
    parity = parity_of(fp32, TRUTH.name)
    assert parity.largest_error is None and parity.first_difference is None
    assert [step.update_error for step in parity.steps] == [None] * STEPS


def test_a_variant_that_fails_alike_on_all_ranks_is_left_out_and_the_others_go_on(fp32: Launch) -> None:
    assert set(fp32.failed) == {"refused"}
    assert "17" in fp32.failed["refused"] and "\n" not in fp32.failed["refused"]
    assert "refused" not in fp32.results
    assert fp32.events[-1] == {"event": "finished"}


def test_every_step_is_progress(fp32: Launch) -> None:
    done = [event for event in fp32.events if event["event"] == "progress" and event["variant"] == "zero-1 stock"]
    assert [event["done"] for event in done] == [1, 2, 3, done[0]["of"]]


def test_times_are_those_of_the_steps_after_the_warm_up(fp32: Launch) -> None:
    for name, result in fp32.results.items():
        speed = result.speed
        assert speed is not None
        assert len(speed.step_seconds) == STEPS - 1
        assert min(*speed.step_seconds, speed.forward_seconds, speed.backward_seconds, speed.update_seconds) > 0
        tokens = math.fsum(step.num_tokens for step in parity_of(fp32, name).steps[1:])
        assert speed.tokens_per_second == pytest.approx(tokens / math.fsum(speed.step_seconds))
        if name == TRUTH.name:
            assert speed.communication_share is None and result.communication is None
        else:
            assert speed.communication_share is not None and 0 < speed.communication_share <= 1


def test_the_same_seed_gives_the_same_numbers(fp32: Launch, tmp_path: Path) -> None:
    chosen = (TRUTH.name, "zero-1 token", "zero-3 stock", "fsdp")
    again = launch(tmp_path, spec_of(TRUTH, *TOKEN, *MEANS), variants=chosen)
    for name in chosen:
        assert again.results[name].parity == fp32.results[name].parity
        assert again.results[name].communication == fp32.results[name].communication


def test_another_seed_gives_other_numbers(fp32: Launch, tmp_path: Path) -> None:
    workload = Workload(layers=1, width=32, heads=4, vocabulary=64, sequence_length=32, seed=1)
    spec = RunSpec(world_size=2, global_batch_size=16, steps=1, workload=workload, variants=(TRUTH,))
    step = launch(tmp_path, spec).results[TRUTH.name].parity
    assert step is not None and step.steps[0].loss != parity_of(fp32, TRUTH.name).steps[0].loss


def test_without_clipping_rounding_explains_less(tmp_path: Path) -> None:
    token = tuple(variant("token", stage, clipping=0.0) for stage in range(4))
    found = launch(tmp_path, spec_of(TRUTH, *token, variant("ddp"), clipping=0.0))
    for item in token:
        parity = parity_of(found, item.name)
        assert parity.largest_error is not None and parity.largest_error <= parity.tolerance
        assert 1e-5 < parity.tolerance < 2e-5
        assert [step.clip_coefficient for step in parity.steps] == [None] * STEPS
    assert [step.clip_coefficient for step in parity_of(found, "ddp").steps] == [None] * STEPS


def test_adamw_agrees_as_well(tmp_path: Path) -> None:
    found = launch(tmp_path, spec_of(TRUTH, *TOKEN, optimizer="adamw", learning_rate=1e-3))
    for item in TOKEN:
        assert (parity_of(found, item.name).largest_error or 1.0) <= 1e-3, item.name


def test_a_small_learning_rate_is_not_mistaken_for_a_difference(tmp_path: Path) -> None:
    found = launch(tmp_path, spec_of(TRUTH, *TOKEN, variant("ddp"), learning_rate=1e-5))
    for item in TOKEN:
        parity = parity_of(found, item.name)
        # Far more than of a usual update is lost in rounding the parameters.
        assert parity.largest_error is not None and 1e-4 < parity.largest_error < parity.tolerance < 0.1
    assert parity_of(found, "ddp").first_difference is not None


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_the_fp32_parameters_of_every_wrapper_are_found(tmp_path: Path, dtype: str) -> None:
    offload = {"offload_optimizer": {"device": "cpu"}}
    accumulated = {"data_types": {"grad_accum_dtype": "fp32"}}
    both = (
        *(variant("token", stage, dtype=dtype) for stage in range(4)),
        *(
            variant("token", stage, dtype=dtype, name=f"round robin {stage}", zero={"round_robin_gradients": True})
            for stage in (1, 2)
        ),
        variant("token", 2, dtype=dtype, name="offload 2", zero=offload),
        variant("token", 3, dtype=dtype, name="offload 3", zero={**offload, "offload_param": {"device": "cpu"}}),
    )
    only = (variant("token", 1, dtype=dtype, name="BF16_Optimizer", config=accumulated),) if dtype == "bf16" else ()
    found = launch(tmp_path, spec_of(TRUTH, *both, *only, dtype=dtype), fp16=True)
    for item in (*both, *only):
        parity = parity_of(found, item.name)
        assert parity.tolerance == pytest.approx(2e-2, rel=1e-3)
        # A wrong parameter would be off by more than the whole update.
        assert parity.largest_error is not None and 0 < parity.largest_error < 1e-2, item.name


def test_fp16_on_a_machine_without_is_one_sentence_about_that_variant(tmp_path: Path) -> None:
    fp16 = (variant("token", 1, dtype="fp16"), variant("ddp"))
    found = launch(tmp_path, spec_of(TRUTH, *fp16, dtype="fp16"))
    assert set(found.results) == {TRUTH.name}
    assert found.failed == {
        "zero-1 token": "DeepSpeed does not train in fp16 on this cpu",
        "ddp": "ddp does not train in fp16 here, because torch leaves scaling the loss to the loop",
    }
