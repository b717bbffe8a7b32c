"""The ready configs lint clean, and DeepSpeed starts with each; the broken ones that bin/demo shows, it refuses."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
CONFIGS = sorted((REPOSITORY / "configs").glob("*.json"))
BROKEN = sorted((REPOSITORY / "tests" / "data" / "broken").glob("*.json"))
WORLD_SIZES = (1, 2, 8, 64)

# Every scheduler of DeepSpeed's says this about itself when it is built.
UNAVOIDABLE_WARNING = "Attempting to get learning rate from scheduler before it has started"

each_config = pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
# The script brings no optimizer of its own, so that the config's is the one that runs.
ONLY_THE_CONFIG = ("--client-optimizer", "no")

each_broken_config = pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)


def lint(path: Path, *, world_size: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ds_accum", "lint", str(path), "--world-size", str(world_size), *ONLY_THE_CONFIG],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# ------------------------------------------------------------------------------------------------------------ as files


def test_there_is_a_config_for_every_stage_and_precision() -> None:
    names = {path.stem for path in CONFIGS}
    assert names == {"zero0", "zero1", "zero2", "zero3", "zero3_offload", "bf16", "fp16", "pipeline"}


def test_the_readme_beside_the_configs_names_each_and_no_other() -> None:
    named = re.findall(r"^\| `(\w+)\.json`", (REPOSITORY / "configs" / "README.md").read_text(), flags=re.MULTILINE)
    assert sorted(named) == [path.stem for path in CONFIGS]


@each_config
def test_a_config_is_strict_json_without_a_repeated_key(path: Path) -> None:
    def no_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs), f"a key is repeated among {[key for key, _ in pairs]}"
        return dict(pairs)

    json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=no_repetition)


@each_config
def test_a_config_starts_warming_up_at_its_optimizers_rate(path: Path) -> None:
    config = json.loads(path.read_text(encoding="utf-8"))
    warmup = config["scheduler"]["params"]
    assert warmup["warmup_max_lr"] == config["optimizer"]["params"]["lr"]
    assert 0 < warmup["warmup_min_lr"] < warmup["warmup_max_lr"]
    assert warmup["warmup_num_steps"] < warmup["total_num_steps"]


# ------------------------------------------------------------------------------------------------------- to the linter


@each_config
def test_a_config_lints_clean(path: Path) -> None:
    finished = lint(path, world_size=8)
    assert finished.returncode == 0, finished.stdout + finished.stderr


@each_broken_config
def test_a_broken_config_is_caught(path: Path) -> None:
    finished = lint(path, world_size=8)
    assert finished.returncode == 1, finished.stdout + finished.stderr
    assert re.search(r"\bDSA\d{3}\b", finished.stdout), finished.stdout


# -------------------------------------------------------------------------------------------------------- to DeepSpeed


@contextlib.contextmanager
def deepspeed_warnings() -> Iterator[list[str]]:
    """What DeepSpeed logs as a warning or worse inside the block."""
    from deepspeed.utils import logger

    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)


def load_with_deepspeed(path: Path, world_size: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """DeepSpeed's own reading of a file, on a job of this many ranks."""
    from deepspeed.runtime import config

    class World:
        """What the config asks of torch.distributed, which is not running here."""

        @staticmethod
        def get_rank() -> int:
            return 0

        @staticmethod
        def get_world_size() -> int:
            return world_size

    monkeypatch.setattr(config, "dist", World)
    return config.DeepSpeedConfig(str(path))


def check_as_the_engine_does(config: Any) -> None:
    """The engine's own check of a config it was given, before it builds anything."""
    from deepspeed.runtime.engine import DeepSpeedEngine
    from torch.nn import Module

    engine = DeepSpeedEngine.__new__(DeepSpeedEngine)
    Module.__init__(engine)
    engine.__dict__.update(_config=config, client_optimizer=None)
    engine._do_sanity_check()


@pytest.mark.engine
@pytest.mark.parametrize("world_size", WORLD_SIZES)
@each_config
def test_deepspeed_loads_a_config_at_every_world_size_without_a_warning(
    path: Path, world_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = json.loads(path.read_text(encoding="utf-8"))
    with deepspeed_warnings() as warnings:
        loaded = load_with_deepspeed(path, world_size, monkeypatch)
    assert warnings == []
    assert loaded.train_batch_size == (
        written["train_micro_batch_size_per_gpu"] * written["gradient_accumulation_steps"] * world_size
    )
    assert loaded.zero_optimization_stage == written["zero_optimization"]["stage"]


@pytest.mark.engine
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # which DeepSpeed leaves open when reading fails
@each_broken_config
def test_deepspeed_refuses_a_broken_config(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = importlib.metadata.version("deepspeed")
    if path.stem.startswith("removed_") and tuple(map(int, re.findall(r"\d+", release)[:3])) < (0, 19, 8):
        pytest.skip(f"DeepSpeed {release} still has it")
    refusal = {
        "batch_mismatch": r"train_batch_size is not equal to .* 256 != 8 \* 2 \* 8",
        "misspelt_key": r"stage3_prefetch_bucket_sizes\n\s+Extra inputs are not permitted",
        "removed_block": r"'elasticity' configuration block is no longer supported",
        "removed_optimizer": r"OneBitAdam is not a supported DeepSpeed Optimizer",
        "syntax_error": r"check your syntax\): line 10 column 12",
    }[path.stem]
    with pytest.raises(Exception, match=refusal):
        check_as_the_engine_does(load_with_deepspeed(path, 8, monkeypatch))


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What came of starting DeepSpeed with each config and taking one step, by file name."""
    results = tmp_path_factory.mktemp("started") / "results.jsonl"
    finished = subprocess.run(
        [sys.executable, REPOSITORY / "tests" / "start_each_config.py", results, *CONFIGS],
        env={**os.environ, "DS_ACCELERATOR": "cpu"},
        capture_output=True,
        text=True,
        # Where they have not been compiled yet, DeepSpeed compiles two optimizers first.
        timeout=900,
        check=False,
    )
    if finished.returncode:
        pytest.fail(f"the worker exited with {finished.returncode}:\n{finished.stdout}\n{finished.stderr}")
    lines = results.read_text(encoding="utf-8").splitlines()
    return {outcome["config"]: outcome for outcome in map(json.loads, lines)}


@pytest.mark.engine
@each_config
def test_deepspeed_starts_with_a_config_and_takes_a_step(path: Path, started: dict[str, dict[str, Any]]) -> None:
    outcome = started[path.name]
    assert "error" not in outcome, outcome["error"]
    written = json.loads(path.read_text(encoding="utf-8"))
    micro_batch, steps = written["train_micro_batch_size_per_gpu"], written["gradient_accumulation_steps"]
    assert outcome["batch"] == [micro_batch * steps, micro_batch, steps]
    assert (outcome["steps"], outcome["skipped"]) == (1, 0)
    assert outcome["scheduler"] == written["scheduler"]["type"]
    assert outcome["first_learning_rate"] == written["scheduler"]["params"]["warmup_min_lr"]
    assert outcome["moved"] > 0
    assert set(outcome["warnings"]) <= {UNAVOIDABLE_WARNING}
