"""One rank of a launch that saves checkpoints and continues from them.

    RANK=0 WORLD_SIZE=1 python resume_worker.py RENDEZVOUS RESULTS < steps.jsonl

A step is a line of JSON: "config", and "save" or "load", the folder; "lose", the name of a file that is removed before
that. What became of it is a line in the file RESULTS: null, or the exception.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.update(DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1")

import torch

WIDTH = 8


def main(rendezvous: str, results: str) -> None:
    import deepspeed
    import torch.distributed as dist

    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    os.environ["LOCAL_RANK"] = str(rank)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world_size)
    deepspeed.init_distributed("gloo", dist_init_required=False)
    with Path(results).open("w", encoding="utf-8") as file:
        for line in sys.stdin:
            step = json.loads(line)
            dist.barrier()
            if rank == 0 and "lose" in step:
                Path(step["lose"]).unlink()
            dist.barrier()
            print(json.dumps(_become(step)), file=file, flush=True)
    # What failed on one rank alone may have left the others waiting for it.
    os._exit(0)


def _become(step: dict[str, Any]) -> str | None:
    try:
        engine = _engine(step["config"])
        if "save" in step:
            _train(engine)
            engine.save_checkpoint(step["save"])
        else:
            path, _ = engine.load_checkpoint(step["load"])
            assert path is not None, "nothing was loaded"
            _train(engine)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _engine(config: dict[str, Any]) -> Any:
    import deepspeed

    torch.manual_seed(0)
    model = torch.nn.Linear(WIDTH, WIDTH)
    engine, *_ = deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())
    return engine


def _train(engine: Any) -> None:
    """One optimizer step."""
    dtype = next(engine.module.parameters()).dtype
    engine.backward(engine(torch.ones(2, WIDTH, dtype=dtype)).float().pow(2).mean())
    engine.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
