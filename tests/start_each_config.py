"""Starts DeepSpeed with each config given on the command line and takes one real optimizer step on one CPU rank.

    python start_each_config.py RESULTS.jsonl CONFIG.json...

One process for all configs, because importing torch and DeepSpeed costs more than every step taken here. For each
config one line of JSON goes to RESULTS.jsonl: the batch numbers and the learning rate that the engine reports and how
far the step moved the parameters, or the error it died of.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator
from deepspeed.pipe import PipelineModule
from deepspeed.utils import logger

WIDTH = 16


class _Warnings(logging.Handler):
    """Collects what DeepSpeed warns about while one config starts and steps."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def main(results_path: str, *config_paths: str) -> None:
    torch.set_num_threads(1)
    # DeepSpeed asks whether oneDNN has fp16 kernels for this CPU; torch computes in fp16 on every CPU, only slowly.
    get_accelerator().is_fp16_supported = lambda: True
    rendezvous = Path(tempfile.mkdtemp()) / "rendezvous"
    deepspeed.init_distributed(
        dist_backend="gloo", auto_mpi_discovery=False, init_method=f"file://{rendezvous}", rank=0, world_size=1
    )
    with Path(results_path).open("w", encoding="utf-8") as results:
        for path in config_paths:
            results.write(json.dumps({"config": Path(path).name, **_outcome(path)}) + "\n")
            results.flush()


def _outcome(path: str) -> dict[str, Any]:
    warnings = _Warnings()
    logger.addHandler(warnings)
    try:
        return {**_one_step(path), "warnings": warnings.messages}
    except Exception:
        return {"error": traceback.format_exc(), "warnings": warnings.messages}
    finally:
        logger.removeHandler(warnings)


def _one_step(path: str) -> dict[str, Any]:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, WIDTH)]
    pipelined = Path(path).stem == "pipeline"
    model = PipelineModule(layers, num_stages=1, loss_fn=_loss) if pipelined else torch.nn.Sequential(*layers)
    engine, _, _, scheduler = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=path)
    before = _full_parameters(engine)
    learning_rate = engine.get_lr()[0]
    micro_batches = [
        torch.randn(2, engine.train_micro_batch_size_per_gpu(), WIDTH, dtype=before[0].dtype)
        for _ in range(engine.gradient_accumulation_steps())
    ]
    if pipelined:
        engine.train_batch(iter([(inputs, targets) for inputs, targets in micro_batches]))
    else:
        for inputs, targets in micro_batches:
            engine.backward(_loss(engine(inputs), targets))
            engine.step()
    after = _full_parameters(engine)
    moved = max(float((new - old).abs().max()) for new, old in zip(after, before, strict=True))
    return {
        "optimizer": type(engine.optimizer).__name__,
        "dtype": str(before[0].dtype),
        "batch": [
            engine.train_batch_size(),
            engine.train_micro_batch_size_per_gpu(),
            engine.gradient_accumulation_steps(),
        ],
        "steps": engine.global_steps,
        "skipped": engine.skipped_steps,
        "scheduler": type(scheduler).__name__,
        "first_learning_rate": learning_rate,
        "moved": moved,
    }


def _loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean squared error, a scalar in fp32: in fp16 the initial loss scale of 2**16 alone would overflow it."""
    return torch.nn.functional.mse_loss(outputs.float(), targets.float())


def _full_parameters(engine: Any) -> list[torch.Tensor]:
    """The model's parameters as the forward pass uses them; at ZeRO-3 they are gathered first."""
    parameters = list(engine.module.parameters())
    with deepspeed.zero.GatheredParameters(parameters, enabled=engine.zero_optimization_partition_weights()):
        return [parameter.detach().clone() for parameter in parameters]


if __name__ == "__main__":
    main(*sys.argv[1:])
