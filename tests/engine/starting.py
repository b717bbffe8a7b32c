"""What the ranks of `test_initialize.py` do: engines started in every way that `deepspeed.initialize` can be called."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from tiny import MeanOfValues, batch, config_of, moved, sgd, start, train
from torch import nn

Arguments = dict[str, Any]


def config_in_every_form(arguments: Arguments, rank: int, folder: Path) -> dict[str, float]:
    """The same config as a mapping, a path, base64, an attribute of args, by position, and under its old name."""
    import ds_accum

    config = config_of(accumulation=2, ds_accum_is_ignored_by_deepspeed=True)
    path = folder / f"config-{rank}.json"
    path.write_text(json.dumps(config), "utf-8")
    word = base64.urlsafe_b64encode(json.dumps(config).encode()).decode()
    args = SimpleNamespace(deepspeed_config=str(path), local_rank=rank)

    def started(*positional: Any, **named: Any) -> float:
        model = positional[1] if len(positional) > 1 else MeanOfValues()
        more = {} if len(positional) > 1 else {"model": model, "optimizer": sgd(model)}
        engine = ds_accum.initialize(*positional, **more, **named)[0]
        train(engine, [1.0, 2.0, 3.0])
        train(engine, [6.0])
        return moved(engine)

    model = MeanOfValues()
    by_position = (None, model, sgd(model), None, None, None, 29500, None, None, None, config)
    return {
        "mapping": started(config=config),
        "path": started(config=str(path)),
        "base64": started(config=word),
        "old name": started(config_params=config),
        "args": started(args=args),
        "position": started(*by_position),
    }


def everything_of_the_client(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """An optimizer and a scheduler made by functions, training data and a function that collates it."""
    import ds_accum

    class Data(torch.utils.data.Dataset[float]):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> float:
            return float(index)

    config = config_of(stage=1, accumulation=2)
    config["train_micro_batch_size_per_gpu"] = 2
    engine, optimizer, loader, scheduler = ds_accum.initialize(
        model=MeanOfValues(),
        model_parameters=None,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1.0),
        lr_scheduler=lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step),
        training_data=Data(),
        collate_fn=batch,
        config=config,
    )
    rates, moves = [], []
    for values in loader:
        before = moved(engine)
        engine.backward(engine(**values))
        engine.step()
        moves.append(moved(engine) - before)
        rates.append(scheduler.get_last_lr()[0])
    return {"moves": moves, "rates": rates, "same optimizer": optimizer is engine.optimizer}


def hybrid(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """DeepSpeed's engine for reinforcement learning: its class, and a window with the values 1, 2, 3 and 6."""
    from deepspeed.runtime.hybrid_engine import DeepSpeedHybridEngine

    from ds_accum.engine.token_weighted import TokenWeightedEngine

    settings = {"stage": arguments["stage"], "hybrid_engine": {"enabled": True, "max_out_tokens": 16}}
    engine = start("ours", accumulation=2, **settings)
    train(engine, [1.0, 2.0, 3.0])
    train(engine, [6.0])
    both = isinstance(engine, DeepSpeedHybridEngine) and isinstance(engine, TokenWeightedEngine)
    return {"class": type(engine).__name__, "both": both, "moved": moved(engine)}


def disabled(arguments: Arguments, rank: int, folder: Path) -> dict[str, str]:
    """The class of the engine for values of DS_ACCUM_DISABLE."""
    import ds_accum

    said = {}
    for value in ("1", "yes", "false", "No", "0", ""):
        os.environ["DS_ACCUM_DISABLE"] = value
        model = MeanOfValues()
        said[value] = type(ds_accum.initialize(model=model, optimizer=sgd(model), config=config_of())[0]).__name__
    return said


def refused_after_building(arguments: Arguments, rank: int, folder: Path) -> str:
    """What `initialize` says to an engine that only DeepSpeed could tell us about."""
    import ds_accum

    model: nn.Module = MeanOfValues()
    optimizer: Any = sgd(model)
    if arguments["what"] == "no optimizer":
        optimizer = None
    elif arguments["what"] == "experts":
        from deepspeed.moe.layer import MoE
        from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer as split

        model = nn.Sequential(MoE(hidden_size=4, expert=nn.Linear(4, 4), num_experts=2, ep_size=2))
        groups = split({"params": list(model.parameters()), "name": "all"})
        optimizer = torch.optim.SGD(groups, lr=1.0)
    elif arguments["what"] == "unknown wrapper":
        from deepspeed.runtime.fp16.unfused_optimizer import FP16_UnfusedOptimizer

        class Wrapper(FP16_UnfusedOptimizer):  # type: ignore[misc]  # DeepSpeed has no types
            """One of DeepSpeed's own family that we have not read."""

        from ds_accum.engine.carriers import carrier_of

        try:
            carrier_of(object.__new__(Wrapper))
        except ValueError as error:
            return f"{type(error).__name__}: {error}"
        return "nothing"
    try:
        ds_accum.initialize(model=model, optimizer=optimizer, config=config_of(**arguments["settings"]))
    except Exception as error:
        return f"{type(error).__name__}: {error} {getattr(error, 'remedy', '')}"
    return "nothing"
