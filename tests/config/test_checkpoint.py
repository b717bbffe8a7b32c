"""What the names in a checkpoint folder tell, and what is said about folders that hold none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ds_accum.config.checkpoint import checkpoint_from_names, read_checkpoint
from ds_accum.errors import UsageError

MODEL = "mp_rank_00_model_states.pt"


def save(folder: Path, *names: str, tag: str = "global_step5") -> Path:
    (folder / tag).mkdir(parents=True)
    (folder / "latest").write_text(tag, encoding="utf-8")
    for name in names:
        (folder / tag / name).touch()
    return folder


def test_ranks_of_every_model_parallel_rank_are_counted_once() -> None:
    names = [f"zero_pp_rank_{rank}_mp_rank_{model:02d}_optim_states.pt" for rank in range(4) for model in range(2)]
    checkpoint = checkpoint_from_names([MODEL, "mp_rank_01_model_states.pt", *names])
    assert checkpoint is not None
    assert (checkpoint.data_parallel_size, checkpoint.missing_ranks, checkpoint.stages) == (4, (), (1, 2))


def test_the_names_of_old_releases_are_known() -> None:
    checkpoint = checkpoint_from_names([MODEL, "zero_pp_rank_0_mp_rank_00optim_states.pt"])
    assert checkpoint is not None and checkpoint.data_parallel_size == 1


def test_stage_3_has_its_weights_in_pieces() -> None:
    checkpoint = checkpoint_from_names(["zero_pp_rank_0_mp_rank_00_model_states.pt"])
    assert checkpoint is not None and checkpoint.stages == (3,)


def test_without_optimizer_states_nothing_is_known_of_the_ranks() -> None:
    checkpoint = checkpoint_from_names([MODEL])
    assert checkpoint is not None
    assert (checkpoint.stages, checkpoint.data_parallel_size, checkpoint.is_bf16) == ((0,), None, None)


def test_without_model_states_there_is_no_checkpoint() -> None:
    assert checkpoint_from_names(["model.safetensors", "config.json"]) is None


def test_trainers_state_is_read_and_the_last_of_its_checkpoints_is_taken(tmp_path: Path) -> None:
    for step in (9, 10):
        folder = save(tmp_path / f"checkpoint-{step}", MODEL)
        state = {"global_step": step, "train_batch_size": 4, "max_steps": "many"}
        (folder / "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")
    checkpoint = read_checkpoint(tmp_path)
    assert (checkpoint.global_step, checkpoint.micro_batch_size, checkpoint.max_steps) == (10, 4, None)
    assert read_checkpoint(tmp_path / "checkpoint-9").global_step == 9


@pytest.mark.parametrize("state", ["", "[]", "{", "[" * 100_000])
def test_a_broken_trainer_state_is_as_good_as_none(tmp_path: Path, state: str) -> None:
    save(tmp_path, MODEL)
    (tmp_path / "trainer_state.json").write_text(state, encoding="utf-8")
    assert read_checkpoint(tmp_path).global_step is None


def test_the_folder_with_the_files_themselves_will_do(tmp_path: Path) -> None:
    save(tmp_path, MODEL)
    assert read_checkpoint(tmp_path / "global_step5").tag == ""


def test_a_universal_checkpoint_is_noticed(tmp_path: Path) -> None:
    (save(tmp_path, MODEL) / "latest_universal").write_text("global_step5_universal", encoding="utf-8")
    assert read_checkpoint(tmp_path).has_universal


def test_a_folder_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--resume: .*none is not there"):
        read_checkpoint(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"--resume: .*file is no folder"):
        read_checkpoint(tmp_path / "file")


def test_a_folder_without_a_checkpoint_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no checkpoint of DeepSpeed's: it has no file called latest") as raised:
        read_checkpoint(tmp_path)
    assert raised.value.remedy is not None
    save(tmp_path / "empty")
    with pytest.raises(UsageError, match="there are no model states of DeepSpeed's in"):
        read_checkpoint(tmp_path / "empty")


@pytest.mark.parametrize("tag", ["", "gone", "../elsewhere", "/etc"])
def test_a_latest_that_names_no_folder_beside_it_is_one_clear_error(tmp_path: Path, tag: str) -> None:
    save(tmp_path / "elsewhere", MODEL)
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "latest").write_text(tag, encoding="utf-8")
    with pytest.raises(UsageError, match="which is no folder beside it"):
        read_checkpoint(folder)
