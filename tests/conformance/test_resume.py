"""What ds-accum says of continuing from a checkpoint, beside the real DeepSpeed that saves and loads it.

Small checkpoints are written at every stage, in fp32 and in bf16, on one rank and on two; DeepSpeed then continues from
each with each config, and refuses exactly where the linter has an error about the checkpoint.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ds_accum.config.checkpoint import read_checkpoint
from ds_accum.config.launch import Launch
from ds_accum.lint import Severity, lint_text

pytestmark = pytest.mark.engine

WORKER = Path(__file__).with_name("resume_worker.py")
RULES_ABOUT_IT = {"DSA850", "DSA851", "DSA852", "DSA853", "DSA854"}


def config_of(stage: int, *, bf16: bool = False, universal: bool = False) -> dict[str, Any]:
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_optimization": {"stage": stage},
    }
    if bf16:
        config["bf16"] = {"enabled": True}
    if universal:
        config["checkpoint"] = {"load_universal": True}
    return config


CONFIGS = {
    **{f"stage {stage}": config_of(stage) for stage in range(4)},
    "stage 2 in bf16": config_of(2, bf16=True),
    "stage 3 in bf16": config_of(3, bf16=True),
    "a universal one": config_of(2, universal=True),
}
SAVED = [name for name in CONFIGS if name != "a universal one"]
SAVED_ON_TWO = ["stage 0", "stage 1", "stage 3"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Continued:
    """A checkpoint, the config and the ranks it was continued with, and what DeepSpeed raised."""

    folder: Path
    config: str
    ranks: int
    error: str | None


def run(ranks: int, steps: Sequence[dict[str, Any]], folder: Path) -> list[str | None]:
    """What became of each step, on the ranks together: the first rank's exception, or another's."""
    results = [folder / f"results-{rank}" for rank in range(ranks)]
    processes = [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(folder / "rendezvous"), str(results[rank])],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]
    text = "".join(json.dumps(step) + "\n" for step in steps)
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(text)
        process.stdin.close()
        process.stdin = None
    try:
        said = [process.communicate(timeout=240)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    became = [[json.loads(line) for line in path.read_text("utf-8").splitlines()] for path in results]
    assert all(len(lines) == len(steps) for lines in became), said[0][-3000:]
    return [next(filter(None, errors), None) for errors in zip(*became, strict=True)]


@pytest.fixture(scope="module")
def continued(tmp_path_factory: pytest.TempPathFactory) -> list[Continued]:
    folder = tmp_path_factory.mktemp("resume")
    for ranks in (1, 2):
        (folder / f"run-{ranks}").mkdir()
    on_two = {name: folder / f"two ranks, {name}" for name in SAVED_ON_TWO}
    lost = folder / "two ranks, a file lost"
    name_of_the_lost = lost / "global_step1" / "zero_pp_rank_0_mp_rank_00_optim_states.pt"
    steps: list[dict[str, Any]] = [
        *({"config": CONFIGS[name], "save": str(path)} for name, path in on_two.items()),
        {"config": CONFIGS["stage 1"], "save": str(lost)},
        *({"config": CONFIGS[name], "load": str(path)} for name, path in on_two.items()),
        # The last one: on the other rank it succeeds.
        {"config": CONFIGS["stage 1"], "load": str(lost), "lose": str(name_of_the_lost)},
    ]
    became = run(2, steps, folder / "run-2")
    assert became[: len(on_two) + 1] == [None] * (len(on_two) + 1)
    found = [
        Continued(folder=path, config=name, ranks=2, error=error)
        for (name, path), error in zip([*on_two.items(), ("stage 1", lost)], became[len(on_two) + 1 :], strict=True)
    ]
    on_one = {name: folder / f"one rank, {name}" for name in SAVED}
    pairs = [(path, config) for path in (*on_one.values(), *on_two.values()) for config in CONFIGS]
    steps = [
        *({"config": CONFIGS[name], "save": str(path)} for name, path in on_one.items()),
        *({"config": CONFIGS[config], "load": str(path)} for path, config in pairs),
    ]
    became = run(1, steps, folder / "run-1")
    assert became[: len(on_one)] == [None] * len(on_one)
    found += (
        Continued(folder=path, config=config, ranks=1, error=error)
        for (path, config), error in zip(pairs, became[len(on_one) :], strict=True)
    )
    return found


def codes(item: Continued) -> set[str]:
    launch = Launch(world_size=item.ranks, checkpoint=read_checkpoint(item.folder))
    found = lint_text(json.dumps(CONFIGS[item.config]), launches=[launch])
    return {diagnostic.code for diagnostic in found if diagnostic.severity is Severity.ERROR}


def test_deepspeed_continues_exactly_where_the_linter_has_no_error(continued: list[Continued]) -> None:
    wrong = [
        f"{item.folder.name} -> {item.config} on {item.ranks}: {item.error}, but {sorted(codes(item))}"
        for item in continued
        if bool(codes(item)) != (item.error is not None)
    ]
    assert wrong == []


def test_each_rule_about_checkpoints_is_shown(continued: list[Continued]) -> None:
    shown = set().union(*(codes(item) for item in continued))
    assert shown == RULES_ABOUT_IT
    assert any(item.error is None for item in continued if item.ranks == 2)


def test_what_is_written_is_read_out_of_the_names(continued: list[Continued]) -> None:
    by_name = {item.folder.name: read_checkpoint(item.folder) for item in continued}
    assert {name: checkpoint.stages for name, checkpoint in by_name.items()} == {
        **{f"one rank, stage {stage}": stages for stage, stages in enumerate([(0,), (1, 2), (1, 2), (3,)])},
        "one rank, stage 2 in bf16": (1, 2),
        "one rank, stage 3 in bf16": (3,),
        "two ranks, stage 0": (0,),
        "two ranks, stage 1": (1, 2),
        "two ranks, stage 3": (3,),
        "two ranks, a file lost": (1, 2),
    }
    assert by_name["two ranks, stage 3"].data_parallel_size == 2
    assert by_name["two ranks, a file lost"].missing_ranks == (0,)
    assert by_name["one rank, stage 3 in bf16"].is_bf16 is True
