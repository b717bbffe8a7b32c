"""The two ways in which DeepSpeed is asked here can be trusted: nothing is left behind, and nothing goes unnoticed."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import deepspeed_start
import pytest
from deepspeed_load import load_values
from deepspeed_start import Outcome, Trial, run_trials

from ds_accum.config.launch import Launch

ADAMW = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW"}}


# ------------------------------------------------------------------------------------------------------------ as loaded


def test_loading_takes_the_world_from_the_launch() -> None:
    values = {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1}
    assert not load_values(values, Launch(world_size=8)).refused
    assert "8 != 1 * 1 * 4" in (load_values(values, Launch(world_size=4)).error or "")


@pytest.mark.parametrize(
    ("launch", "batch"),
    [
        (Launch(world_size=8, tensor_parallel_size=2), 4),
        (Launch(world_size=8, pipeline_parallel_size=4), 2),
        (Launch(world_size=8, context_parallel_size=2, tensor_parallel_size=2), 2),
        (Launch(world_size=8, sequence_parallel_size=8), 1),
    ],
)
def test_loading_divides_the_world_by_the_degrees_of_the_script(launch: Launch, batch: int) -> None:
    values = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1}
    assert not load_values({**values, "train_batch_size": batch}, launch).refused
    assert load_values({**values, "train_batch_size": 8}, launch).refused


def test_loading_lays_out_the_mesh_that_a_config_asks_for() -> None:
    values = {"train_micro_batch_size_per_gpu": 1, "sequence_parallel_size": 2, "data_parallel_size": 4}
    assert not load_values(values, Launch(world_size=8)).refused
    assert "Mesh should not be bigger" in (load_values(values, Launch(world_size=4)).error or "")
    # The ranks outside a mesh that is too small are the ones that fail.
    assert load_values(values, Launch(world_size=16)).refused


def test_loading_leaves_nothing_behind() -> None:
    from deepspeed import comm
    from deepspeed.runtime import config

    values = {
        "train_batch_size": 8,
        "data_efficiency": {"data_sampling": {}},
        "sequence_parallel_size": 1,
        "data_parallel_size": 8,
    }
    before, hook = copy.deepcopy(values), sys.excepthook
    load_values(values, Launch(world_size=8))
    assert (values, sys.excepthook, config.dist) == (before, hook, comm)


def test_loading_does_not_fill_the_memory_with_a_list_of_two_billion_batch_sizes() -> None:
    values = {"train_micro_batch_size_per_gpu": [1], "gradient_accumulation_steps": 2**31}
    assert (load_values(values, Launch(world_size=8)).error or "").startswith("MemoryError")


# --- with real ranks --------------------------------------------------------------------------------------------------

TRIALS = (
    Trial(name="plain", config=ADAMW, step=True),
    Trial(name="only started", config=ADAMW),
    Trial(name="tensor parallelism", config={**ADAMW, "tensor_parallel": {"autotp_size": 2}}, ranks=2, step=True),
    Trial(name="mesh", config={**ADAMW, "sequence_parallel_size": 2, "data_parallel_size": 1}, ranks=2, step=True),
    Trial(name="stage 3", config={**ADAMW, "zero_optimization": {"stage": 3}}, ranks=2, step=True),
    Trial(name="pipeline", config=ADAMW, ranks=2, pipeline_stages=2, step=True),
    Trial(name="refused", config={**ADAMW, "zero_optimization": {"stage": 2}, "prescale_gradients": True}, ranks=2),
    Trial(name="first step", config={**ADAMW, "gradient_clipping": "auto"}, step=True),
    Trial(name="own optimizer", config={"train_batch_size": 2}, client_optimizer="torch", step=True),
    Trial(name="no optimizer", config={"train_batch_size": 2}, step=True),
    Trial(name="no time", config=ADAMW, ranks=2, timeout=1e-3),
)


@pytest.fixture(scope="module")
def folder_of_the_config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("monitor") / "logs"


@pytest.fixture(scope="module")
def outcomes(folder_of_the_config: Path) -> dict[str, Outcome]:
    monitor = {"enabled": True, "output_path": str(folder_of_the_config)}
    return run_trials([*TRIALS, Trial(name="csv", config={**ADAMW, "csv_monitor": monitor}, step=True)])


def test_a_trial_tells_how_far_it_came(outcomes: dict[str, Outcome]) -> None:
    assert {name: item.reached for name, item in outcomes.items()} == {
        "plain": "first step",
        "only started": "start",
        "tensor parallelism": None,
        "mesh": "first step",
        "stage 3": "first step",
        "pipeline": "first step",
        "refused": None,
        "first step": "start",
        "own optimizer": "first step",
        "no optimizer": "start",
        "no time": None,
        "csv": "first step",
    }


def test_a_refusal_is_told_by_every_rank_with_its_traceback(outcomes: dict[str, Outcome]) -> None:
    refused = outcomes["refused"]
    assert len(refused.errors) == 2
    assert refused.symmetrical
    assert all("pre-scale gradients is not yet supported with ZeRO-2" in error for error in refused.errors)
    assert "Traceback" in refused.log


def test_a_trial_that_takes_too_long_is_given_up_and_the_others_go_on(outcomes: dict[str, Outcome]) -> None:
    assert [name for name, item in outcomes.items() if item.hung] == ["no time"]
    assert outcomes["no time"].errors == ("hung", "hung")


def test_the_order_of_the_trials_does_not_matter(outcomes: dict[str, Outcome]) -> None:
    for name, backwards in run_trials(reversed(TRIALS)).items():
        assert (name, backwards.reached, backwards.errors) == (name, outcomes[name].reached, outcomes[name].errors)


def test_a_folder_that_a_config_names_is_not_made(outcomes: dict[str, Outcome], folder_of_the_config: Path) -> None:
    assert outcomes["csv"].reached == "first step"
    assert not folder_of_the_config.exists()


def test_a_worker_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text("import time; time.sleep(600)", "utf-8")
    monkeypatch.setattr(deepspeed_start, "WORKER", worker)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    (tmp_path / "cpu_adam").mkdir()
    (tmp_path / "cpu_adam" / "lock").touch()
    with pytest.raises(RuntimeError, match="took longer than 1 s; compilers left these locks: .*cpu_adam/lock"):
        run_trials([Trial(name="x", config={})], timeout=1.0)


def test_a_worker_that_fails_itself_is_no_verdict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text("raise SystemExit('on purpose')", "utf-8")
    monkeypatch.setattr(deepspeed_start, "WORKER", worker)
    with pytest.raises(RuntimeError, match="the worker exited with 1:\non purpose"):
        run_trials([Trial(name="x", config={})])
