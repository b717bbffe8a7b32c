"""What the ranks of `test_counts.py` do: counts that the host does not see, sums over nothing, and means of means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tiny import MeanOfValues, batch, moved, raised, start
from torch import Tensor
from windows import ending

from ds_accum.engine import taking_in

Arguments = dict[str, Any]
BLOCK = {"counting": {"shift": False}}


def counts_on_a_device(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """Counts that are not looked at when they are given, as those of a device: two of each rank, then the step."""

    def not_looked_at(number: float, device: torch.device) -> Tensor:
        return torch.full((), float(number), dtype=torch.float64, device=device)

    taking_in.as_count = not_looked_at  # type: ignore[attr-defined]
    engine = start("ours", accumulation=2, **arguments["settings"])
    for count in arguments["counts"][rank]:
        engine.backward(engine(**batch([4.0, 4.0])), num_tokens=float(count))
        said = raised(engine.step)
    return {"raised": said, **ending(engine)}


class SumOfValues(MeanOfValues):
    """The sum of the losses that count, by hand: 0 times infinity where one that does not count is infinite."""

    def forward(self, values: Tensor, labels: Tensor) -> Tensor:
        losses = (values.to(self.weight.dtype)[:, None].expand(-1, 4) * self.weight).sum(dim=1).float()
        return (losses * (labels != -100).float()).sum()


def sum_over_nothing(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """Sums: on rank 1, the second micro-batch counts nothing, and its sum is a number or, with infinity, none."""
    engine = start(
        "ours", model=SumOfValues(), accumulation=2, block={**BLOCK, "loss_reduction": "sum"}, **arguments["settings"]
    )
    made = [batch([1.0, 3.0]), batch([5.0])]
    if rank == 1:
        made[1] = {"values": torch.tensor([float(arguments["ignored"])]), "labels": torch.tensor([-100])}
    for one in made:
        engine.backward(engine(**one))
        engine.step()
    return {"because": engine.last_step.skipped_because, **ending(engine)}


class Divided(MeanOfValues):
    """Divides its sum by what the caller says that the whole step holds, as Hugging Face's models do."""

    def forward(self, values: Tensor, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        mean = super().forward(values, labels)
        return mean if num_items_in_batch is None else mean * (labels != -100).sum() / num_items_in_batch


_MODELS = {"mean": MeanOfValues, "sum": SumOfValues, "divided": Divided}


def mean_of_means(arguments: Arguments, rank: int, folder: Path) -> dict[str, Any]:
    """Two micro-batches of 3 and 1 values, whose means are 2 and 6, with the counts that the arguments let be known."""
    model, known = arguments["model"], arguments["known"][rank]
    block = {"normalization": "micro_batch", "counting": {"labels": "targets", "shift": False}}
    if arguments["from labels"]:
        block["counting"] = {"shift": False}
    if model == "sum":
        block["loss_reduction"] = "sum"
    module = _MODELS[model]()
    # So that losses tell sums from means.
    torch.nn.init.constant_(module.weight, 0.25)
    engine = start("ours", model=module, accumulation=2, block=block, **arguments["settings"])
    said = []
    for values, is_known in zip(([1.0, 2.0, 3.0], [6.0]), known, strict=True):
        more = {"num_items_in_batch": 17} if model == "divided" else {}
        loss = engine(**batch(values), **more)
        given = {"num_tokens": len(values)} if is_known else {}
        said.append(raised(lambda loss=loss, given=given: engine.backward(loss, **given)))
        if said[-1] != "nothing":
            return {"raised": said}
        engine.step()
    report = engine.last_step
    return {"raised": said, "moved": 0.25 + moved(engine), "tokens": report.num_tokens, "loss": report.loss}
