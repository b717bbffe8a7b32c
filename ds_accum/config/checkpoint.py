"""What a checkpoint folder of DeepSpeed's tells by its file names, and by Trainer's JSON beside them.

    checkpoint = read_checkpoint(Path("out/checkpoint-500"))
    checkpoint.data_parallel_size      # 8: there is a file of optimizer states for each of 8 ranks
    checkpoint.stages                  # (1, 2): the two write the same names

No file of tensors is opened: they are pickles, which can run code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from ds_accum.errors import UsageError

__all__ = ["Checkpoint", "checkpoint_from_names", "read_checkpoint"]

# `_get_rank_zero_ckpt_name`, `_get_ckpt_name` (runtime/engine.py); old releases left out the last underscore.
_OPTIMIZER_STATES = re.compile(r"(bf16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_?optim_states\.pt")
_MODEL_STATES = re.compile(r"(?:(zero_pp_rank_\d+)_)?mp_rank_(\d+)_model_states\.pt")
_TRAINERS_FOLDER = re.compile(r"checkpoint-(\d+)")
_LARGEST_JSON = 50_000_000  # the log of a long training is in it


class Checkpoint(NamedTuple):
    """A checkpoint to continue from.

    `folder` is what `load_checkpoint` is given, `tag` the folder in it. `stages` are the ZeRO stages that write such
    names. `data_parallel_size` is None at stage 0, where one file stands for all ranks; `missing_ranks` are those below
    it without their file. `is_bf16` is None where the names don't tell. `has_universal` says whether there is a
    universal checkpoint beside it. The steps and the batch size are those of Trainer's `trainer_state.json`.
    """

    folder: str
    tag: str
    stages: tuple[int, ...]
    data_parallel_size: int | None = None
    missing_ranks: tuple[int, ...] = ()
    is_bf16: bool | None = None
    has_universal: bool = False
    micro_batch_size: int | None = None
    max_steps: int | None = None
    global_step: int | None = None


def read_checkpoint(folder: FilePath) -> Checkpoint:
    """The checkpoint in a folder: one that DeepSpeed wrote, a `checkpoint-N` of Trainer's, or the last of several.

    Raises UsageError where there is none.
    """
    if not folder.is_dir():
        kind = "no folder" if folder.exists() else "not there"
        raise UsageError(f"--resume: {folder} is {kind}")
    try:
        folder = _last_of_trainers(folder) or folder
        tag = _tag(folder)
        names = [entry.name for entry in (folder / tag).iterdir()]
        has_universal = (folder / "latest_universal").is_file()
    except OSError as error:
        raise UsageError.because(f"--resume: can't read {folder}", error) from error
    checkpoint = checkpoint_from_names(
        names, folder=str(folder), tag=tag, state=_trainer_state(folder), has_universal=has_universal
    )
    if checkpoint is None:
        raise UsageError(f"--resume: there are no model states of DeepSpeed's in {folder / tag}")
    return checkpoint


def checkpoint_from_names(
    names: Iterable[str],
    *,
    folder: str = "checkpoint",
    tag: str = "",
    state: Mapping[str, Any] | None = None,
    has_universal: bool = False,
) -> Checkpoint | None:
    """What the names of a tag's files tell; None if there is no file of a model among them."""
    names = list(names)
    models = [match for match in map(_MODEL_STATES.fullmatch, names) if match]
    if not models:
        return None
    optimizers = [match for match in map(_OPTIMIZER_STATES.fullmatch, names) if match]
    ranks = {int(match[2]) for match in optimizers}
    size = max(ranks) + 1 if ranks else None
    known = state or {}
    return Checkpoint(
        folder=folder,
        tag=tag,
        stages=(3,) if any(match[1] for match in models) else (1, 2) if optimizers else (0,),
        data_parallel_size=size,
        missing_ranks=tuple(sorted(set(range(size or 0)) - ranks)),
        is_bf16=any(match[1] for match in optimizers) if optimizers else None,
        has_universal=has_universal,
        micro_batch_size=_positive(known.get("train_batch_size")),
        max_steps=_positive(known.get("max_steps")),
        global_step=_positive(known.get("global_step")),
    )


def _last_of_trainers(folder: FilePath) -> FilePath | None:
    """The `checkpoint-N` with the highest number, if the folder holds such."""
    if (folder / "latest").is_file():
        return None
    found = [(int(match[1]), entry) for entry in folder.iterdir() if (match := _TRAINERS_FOLDER.fullmatch(entry.name))]
    return max(found)[1] if found else None


def _tag(folder: FilePath) -> str:
    """The folder in the folder that `latest` names; "" where the files stand in it themselves."""
    latest = folder / "latest"
    if latest.is_file():
        tag = latest.read_text("utf-8", "replace")[:300].strip()
        if not tag or FilePath(tag).is_absolute() or ".." in FilePath(tag).parts or not (folder / tag).is_dir():
            raise UsageError(f"--resume: {latest} names {tag!r}, which is no folder beside it")
        return tag
    if any(_MODEL_STATES.fullmatch(entry.name) for entry in folder.iterdir()):
        return ""
    raise UsageError(
        f"--resume: {folder} is no checkpoint of DeepSpeed's: it has no file called latest",
        remedy="name the folder that save_checkpoint was given, or Trainer's checkpoint-N",
    )


def _trainer_state(folder: FilePath) -> dict[str, Any]:
    path = folder / "trainer_state.json"
    try:
        if path.stat().st_size > _LARGEST_JSON:
            return {}
        state = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return state if isinstance(state, dict) else {}


def _positive(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None
