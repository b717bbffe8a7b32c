"""The table of misuses, from real runs: what stock DeepSpeed lets pass depends on the stage, what ds-accum does not."""

from __future__ import annotations

import pytest
from worker_runs import Launch, launch, variant

from ds_accum.compare.result import Misuse
from ds_accum.compare.spec import RunSpec, Workload

SMALL = Workload(layers=1, width=32, heads=4, vocabulary=64, sequence_length=32)


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    variants = tuple(variant(engine, stage) for engine in ("stock", "token") for stage in range(4))  # type: ignore[arg-type]
    once = variant("stock", 0, name="no middle", micro=8, accumulation=1)
    spec = RunSpec(
        world_size=2,
        global_batch_size=16,
        steps=1,
        workload=SMALL,
        variants=(*variants, once, variant("ddp")),
        timeout_s=180.0,
    )
    return launch(tmp_path_factory.mktemp("misuse"), spec, "misuse")


def misuses_of(tried: Launch, name: str) -> dict[str, Misuse]:
    return {misuse.misuse: misuse for misuse in tried.results[name].misuses}


@pytest.mark.parametrize("stage", range(4))
def test_the_guards_stop_clipping_and_zeroing_on_every_stage(tried: Launch, stage: int) -> None:
    found = misuses_of(tried, f"zero-{stage} token")
    assert found["clip_grad_norm_ by hand"].outcome == "stopped: ClippedByHandError"
    assert found["engine.zero_grad()"].outcome == "stopped: GradientsZeroedError"
    assert found["optimizer.zero_grad()"].outcome == "stopped: GradientsZeroedError"
    assert all(misuse.step_error is None for misuse in found.values() if misuse.outcome.startswith("stopped"))
    assert not any(misuse.outcome == "changes the step" for misuse in found.values())


@pytest.mark.parametrize("stage", [0, 1])
def test_stock_deepspeed_makes_another_step_where_gradients_are_the_parameters_own(tried: Launch, stage: int) -> None:
    found = misuses_of(tried, f"zero-{stage} stock")
    for name in ("clip_grad_norm_ by hand", "engine.zero_grad()", "optimizer.zero_grad()", "parameter.grad edited"):
        assert found[name].outcome == "changes the step"
        error = found[name].step_error
        assert error is not None and error > 0.1


@pytest.mark.parametrize("stage", [2, 3])
def test_stock_deepspeed_ignores_clipping_where_gradients_are_elsewhere(tried: Launch, stage: int) -> None:
    found = misuses_of(tried, f"zero-{stage} stock")
    for name in ("clip_grad_norm_ by hand", "engine.zero_grad()", "parameter.grad edited"):
        assert (found[name].outcome, found[name].step_error) == ("no effect", 0.0)


def test_a_step_of_the_optimizer_alone_changes_the_step_or_fails(tried: Launch) -> None:
    outcomes = [misuses_of(tried, f"zero-{stage} stock")["optimizer.step()"].outcome for stage in range(4)]
    assert outcomes[0] == outcomes[3] == "changes the step"
    assert outcomes[1].startswith("fails: KeyError") and outcomes[2].startswith("fails: KeyError")


def test_a_variant_that_has_no_middle_of_a_window_is_refused_in_one_sentence(tried: Launch) -> None:
    assert tried.failed == {
        "no middle": "no middle accumulates 1 micro-batch, so its window has no middle",
        "ddp": "misuse is tried on DeepSpeed's engines, and ddp is none",
    }
