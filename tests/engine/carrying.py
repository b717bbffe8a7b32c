"""What the ranks of `test_carriers.py` do: carriers on real wrappers, outside of any step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tiny import MeanOfValues, start, train

Arguments = dict[str, Any]


def _attributes(thing: Any) -> dict[str, str]:
    """Its own attributes: numbers and words by value, everything else by identity.

    Not the norm, which is a step's result.
    """
    return {
        name: repr(value) if isinstance(value, bool | int | float | str | None) else str(id(value))
        for name, value in vars(thing).items()
        if name != "_global_grad_norm"
    }


def contexts(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """What is left of each context of the carrier once it is closed, also by an error, and what it does inside."""
    from ds_accum.engine import deepspeed_private as private

    model = MeanOfValues()
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=1.0)
    if arguments["optimizer"] == "fused_adam":
        from deepspeed.ops.adam import FusedAdam

        optimizer = FusedAdam(model.parameters(), lr=1.0)
    engine = start("ours", model=model, optimizer=optimizer, **arguments["settings"])
    carrier, wrapper = engine._accumulation.carrier, engine.optimizer
    train(engine, [1.0])
    holders = [wrapper, private.scale_holder(wrapper)]
    before = [_attributes(holder) for holder in holders]
    said: dict[str, Any] = {"name": carrier.name, "kind": type(wrapper).__name__, "scale": carrier.loss_scale()}
    changed = []
    for context in (lambda: carrier.carrying(4.0), carrier.skipping):
        with context():
            said.setdefault("scales inside", []).append(carrier.loss_scale())
            changed.append([_attributes(holder) for holder in holders] != before)
        try:
            with context():
                raise KeyError
        except KeyError:
            pass
    said["left"] = [
        sorted(name for name in before[index] | now if before[index].get(name) != now.get(name))
        for index, now in enumerate(map(_attributes, holders))
    ]
    return said | {"changed": changed, "at the reduction": carrier.at_reduction}
