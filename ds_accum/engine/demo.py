"""`python -m ds_accum.engine.demo`: stock DeepSpeed and ds-accum train on the same uneven text, with the exact answer.

Two processes on the CPU (gloo), ZeRO-2, two micro-batches a step. The same samples go to all three: the stock engine,
the token-weighted one, and one process in float64 that sees the whole batch at once. What is shown is how far the
parameters are from where the exact answer has them.
"""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn

TEXT = """Gradient accumulation adds up the gradients of several micro-batches before one update.
Short.
If the micro-batches hold different numbers of tokens, the mean of their means is not the mean over tokens.
A token in a short sentence then weighs more than a token in a long one.
Yes.
How much more depends on the data: here a lone short sentence can weigh ten times what it should.
Weighted by tokens, every token of the global batch counts the same, on every rank and in every micro-batch.
So.
The norm that is clipped is then the norm of that gradient as well, once, at the boundary.
""".splitlines()

RANKS, STEPS, ACCUMULATION, MICRO_BATCH, LENGTH = 2, 30, 2, 2, 112
WIDTH, VOCABULARY = 64, 128


class CausalModel(nn.Module):
    """A small recurrent language model over ASCII; the loss is the mean over the labels that are not -100."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.recurrence = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
        """tokens, labels [B, T] -> the loss, a scalar; labels are those of the next position already."""
        hidden, _ = self.recurrence(self.embedding(tokens))
        return nn.functional.cross_entropy(self.head(hidden).flatten(0, 1), labels.flatten(), reduction=reduction)


def micro_batch(step: int, index: int, rank: int) -> tuple[Tensor, Tensor]:
    """tokens and labels, both [MICRO_BATCH, LENGTH], the same whoever asks."""
    generator = torch.Generator().manual_seed(1000 * step + 10 * index + rank)
    # Sentences of about one length share a micro-batch, as they do where data is sorted by length.
    long = bool(torch.randint(0, 2, (), generator=generator))
    lines = [line for line in TEXT if (len(line) > 20) == long]
    picked = [lines[int(torch.randint(0, len(lines), (), generator=generator))] for _ in range(MICRO_BATCH)]
    codes = torch.zeros(MICRO_BATCH, LENGTH + 1, dtype=torch.long)
    labels = torch.full((MICRO_BATCH, LENGTH), -100)
    for row, line in enumerate(picked):
        text = torch.tensor(list(line.encode()))[: LENGTH + 1]
        codes[row, : len(text)] = text
        labels[row, : len(text) - 1] = text[1:]
    return codes[:, :-1], labels


def fresh_model() -> CausalModel:
    torch.manual_seed(0)
    return CausalModel()


def parameters_of(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().double().flatten() for parameter in model.parameters()])


def exact_steps() -> Iterator[Tensor]:
    """The parameters after each step, from one process in float64 over the whole batch."""
    model = fresh_model().double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(STEPS):
        batch = [micro_batch(step, index, rank) for index in range(ACCUMULATION) for rank in range(RANKS)]
        counted = sum(int((labels != -100).sum()) for _, labels in batch)
        optimizer.zero_grad()
        for tokens, labels in batch:
            (model(tokens, labels, reduction="sum") / counted).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield parameters_of(model)


def build_engine(initialize: Any) -> Any:
    model = fresh_model()
    config = {
        "train_micro_batch_size_per_gpu": MICRO_BATCH,
        "gradient_accumulation_steps": ACCUMULATION,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": 2},
        "zero_allow_untested_optimizer": True,
        "ds_accum": {"counting": {"shift": False}},
    }
    return initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.5), config=config)[0]


def train_one_step(engine: Any, step: int, rank: int) -> None:
    for index in range(ACCUMULATION):
        tokens, labels = micro_batch(step, index, rank)
        engine.backward(engine(tokens=tokens, labels=labels))
        engine.step()


def run_rank(rank: int, port: int, result: str) -> None:
    """One of the two processes; rank 0 writes what came out to the file `result`."""
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
    torch.set_num_threads(1)
    import deepspeed

    import ds_accum

    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)  # it writes to stdout, between the lines of the demo
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    engines = {"stock DeepSpeed": build_engine(deepspeed.initialize), "ds-accum": build_engine(ds_accum.initialize)}
    start = parameters_of(fresh_model())
    away: dict[str, list[float]] = {name: [] for name in engines}
    reports = []
    for step, exact in enumerate(exact_steps()):
        for name, engine in engines.items():
            train_one_step(engine, step, rank)
            off = (parameters_of(engine.module) - exact).norm() / (exact - start).norm()
            away[name].append(float(off))
        reports.append(engines["ds-accum"].last_step)
        if rank == 0:
            show_progress(step + 1)
    if rank == 0:
        Path(result).write_text(summary(away, reports), encoding="utf-8")
    for engine in engines.values():
        engine.destroy()
    torch.distributed.destroy_process_group()


def show_progress(done: int) -> None:
    if sys.stdout.isatty():
        filled = 40 * done // STEPS
        sys.stdout.write(f"\r  [{'#' * filled}{'.' * (40 - filled)}] step {done} of {STEPS}" + "\n" * (done == STEPS))
        sys.stdout.flush()


def summary(away: dict[str, list[float]], reports: list[Any]) -> str:
    skew = max(report.weighting_skew or 1.0 for report in reports)
    fewest = min(report.num_tokens for report in reports)
    most = max(report.num_tokens for report in reports)
    lines = [
        f"  {STEPS} steps on {RANKS} ranks, {fewest} to {most} counted tokens a step: a mean of means gives some",
        f"  tokens up to {skew:.1f} times the weight that they should have.",
        "",
        f"  {'how far from the exact answer':32}{'after step 1':>14}{f'after step {STEPS}':>16}",
    ]
    lines += [f"  {name:32}{100 * values[0]:>13.4f}%{100 * values[-1]:>15.4f}%" for name, values in away.items()]
    lines += [
        "",
        "  (distance of the parameters, relative to how far the exact answer has moved; one process, float64)",
    ]
    return "\n".join(lines) + "\n"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Runs the demonstration and prints its summary."""
    argparse.ArgumentParser(prog="python -m ds_accum.engine.demo", description=__doc__).parse_args()
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.txt"
        spawn(run_rank, args=(free_port(), str(result)), nprocs=RANKS)  # type: ignore[no-untyped-call]
        sys.stdout.write(result.read_text("utf-8"))


if __name__ == "__main__":
    main()
