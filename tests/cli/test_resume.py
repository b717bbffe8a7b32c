"""`--resume`: a checkpoint that DeepSpeed can't continue from is an error, and a folder without one is called wrongly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

CONFIG = (
    '{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 1.0, "optimizer": {"type": "AdamW", "params":'
    ' {"lr": 1e-4}}, "zero_optimization": {"stage": 2}}'
)


def test_each_world_size_is_compared_with_the_checkpoint(ds_accum: Any, folder: Path) -> None:
    (folder / "ds.json").write_text(CONFIG, encoding="utf-8")
    tag = folder / "out" / "global_step5"
    tag.mkdir(parents=True)
    (tag.parent / "latest").write_text("global_step5", encoding="utf-8")
    for name in ("mp_rank_00_model_states.pt", *(f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in (0, 1))):
        (tag / name).touch()
    finished = ds_accum("lint", "ds.json", "--resume", "out", "--world-size", "2,4", "--format", "concise")
    assert finished.code == 1
    assert "DSA851 [error] out/global_step5 was saved by 2 data-parallel ranks and the launch has 4" in finished.output
    finished = ds_accum("lint", "ds.json", "--resume", "out", "--world-size", "2")
    assert (finished.code, finished.errors) == (0, "")


def test_a_folder_without_a_checkpoint_is_one_error_and_exit_code_2(ds_accum: Any, folder: Path) -> None:
    (folder / "ds.json").write_text(CONFIG, encoding="utf-8")
    finished = ds_accum("lint", "ds.json", "--resume", "none")
    assert (finished.code, finished.output, finished.errors) == (2, "", "error: --resume: none is not there\n")
