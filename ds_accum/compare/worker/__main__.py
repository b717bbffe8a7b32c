"""`python -m ds_accum.compare.worker FOLDER`: one rank of one launch. RANK and WORLD_SIZE are in the environment.

Reads FOLDER/job.json; rank 0 appends to FOLDER/events.jsonl. Ends with 0 once all variants are reported, those that
failed alike on all ranks as well; with 1 where the ranks parted, or the job can't be read, and says why on stderr.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from ds_accum.compare.worker.job import EventLog, Job, read_job
from ds_accum.compare.worker.stopping import OutOfStepError
from ds_accum.errors import DSAccumError, UsageError

if TYPE_CHECKING:
    from ds_accum.compare.worker.ranks import Ranks


def main(arguments: list[str]) -> int:
    """Runs a rank; returns the exit code."""
    faulthandler.enable()
    signal.signal(signal.SIGTERM, _interrupt)
    ranks: Ranks | None = None
    try:
        if len(arguments) != 1:
            raise UsageError("the worker takes one argument, the folder of its launch")
        job = read_job(Path(arguments[0]))
        ranks = _join(job, Path(arguments[0]))
        _run(job, ranks, EventLog(Path(arguments[0])) if ranks.is_first else None)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    except DSAccumError as error:
        if isinstance(error, OutOfStepError) and error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        sys.stderr.write(
            f"{type(error).__name__}: {error.message}" + (f"; {error.remedy}" if error.remedy else "") + "\n"
        )
        return 1
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def _join(job: Job, folder: Path) -> Ranks:
    # Set before deepspeed is imported, which looks once.
    os.environ.setdefault("DS_ACCELERATOR", job.spec.device)
    os.environ.setdefault("DEEPSPEED_LOG_LEVEL", "error")
    # Where it is set for another job, the token-weighted variants would be stock ones.
    os.environ.pop("DS_ACCUM_DISABLE", None)
    import torch

    from ds_accum.compare.worker.ranks import join

    if "OMP_NUM_THREADS" in os.environ:
        torch.set_num_threads(max(1, int(os.environ["OMP_NUM_THREADS"])))
    return join(folder, device=job.spec.device, timeout_s=job.spec.timeout_s, environment=dict(os.environ))


def _run(job: Job, ranks: Ranks, log: EventLog | None) -> None:
    from ds_accum.compare.worker import memory, misuse, parity
    from ds_accum.compare.worker.engines import Context

    kinds = {"parity": parity.run, "memory": memory.run, "misuse": misuse.run}
    kinds[job.kind](job, Context(spec=job.spec, ranks=ranks), log)
    # No rank leaves while another one still needs it.
    ranks.max([0.0])
    if log is not None:
        log.finished()


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Without the interpreter's clean-up: a process group that is still waiting would hold it up.
    os._exit(code)
