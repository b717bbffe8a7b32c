"""Real launches of the worker: one process a rank, as `ds-accum compare` starts them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from ds_accum.compare.result import CollectiveCount, VariantResult
from ds_accum.compare.spec import EngineKind, RunSpec, Variant

REPOSITORY = Path(__file__).resolve().parents[3]

# DeepSpeed refuses fp16 on a CPU whose oneDNN has no kernels for it; torch computes in fp16 on every CPU, only slowly.
WITH_FP16 = """
import runpy, sys
from deepspeed.accelerator import get_accelerator
get_accelerator().is_fp16_supported = lambda: True
runpy.run_module("ds_accum.compare.worker", run_name="__main__")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What became of one: exit codes and stderr of the ranks, and the events of rank 0."""

    codes: tuple[int, ...]
    errors: tuple[str, ...]
    events: tuple[dict[str, Any], ...]

    @property
    def results(self) -> dict[str, VariantResult]:
        """By variant. Fails with the ranks' stderr if the launch did."""
        assert self.codes == (0,) * len(self.codes), "\n".join(self.errors)
        return self.reported

    @property
    def reported(self) -> dict[str, VariantResult]:
        """By variant, whatever became of the launch."""
        adapter = TypeAdapter(VariantResult)
        found = [adapter.validate_python(e["result"]) for e in self.events if e["event"] == "result"]
        return {result.name: result for result in found}

    @property
    def failed(self) -> dict[str, str]:
        """Why each variant that failed did."""
        return {event["variant"]: event["why"] for event in self.events if event["event"] == "failed"}


def start_ranks(
    folder: Path, spec: RunSpec, kind: str, variants: Iterable[str] = (), *, fp16: bool = False
) -> list[Any]:
    """The processes of a launch, running."""
    names = list(variants) or [variant.name for variant in spec.variants]
    job = {"kind": kind, "spec": TypeAdapter(RunSpec).dump_python(spec, mode="json"), "variants": names}
    (folder / "job.json").write_text(json.dumps(job), "utf-8")
    command = [sys.executable, *(("-c", WITH_FP16) if fp16 else ("-m", "ds_accum.compare.worker")), str(folder)]
    kept = {name: value for name, value in os.environ.items() if name not in ("MASTER_ADDR", "MASTER_PORT")}
    ranks = []
    for rank in range(spec.world_size):
        environment = {
            **kept,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(spec.world_size),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        with (folder / f"rank{rank}.err").open("w") as errors:
            ranks.append(
                subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors, cwd=folder)
            )
    return ranks


def wait_for(folder: Path, ranks: list[Any], timeout: float = 240.0) -> Launch:
    """Until all ranks have ended. Ends them itself after `timeout` seconds."""
    try:
        for process in ranks:
            process.wait(timeout)
    finally:
        for process in ranks:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
    events = folder / "events.jsonl"
    lines = events.read_text("utf-8").splitlines() if events.exists() else []
    return Launch(
        codes=tuple(process.returncode for process in ranks),
        errors=tuple((folder / f"rank{rank}.err").read_text("utf-8") for rank in range(len(ranks))),
        events=tuple(json.loads(line) for line in lines),
    )


def launch(
    folder: Path,
    spec: RunSpec,
    kind: Literal["parity", "memory", "misuse"] = "parity",
    variants: Iterable[str] = (),
    *,
    fp16: bool = False,
) -> Launch:
    """Runs a job to its end."""
    folder.mkdir(parents=True, exist_ok=True)
    return wait_for(folder, start_ranks(folder, spec, kind, variants, fp16=fp16))


def variant(
    engine: EngineKind,
    stage: int | None = None,
    *,
    name: str | None = None,
    micro: int = 2,
    accumulation: int = 4,
    clipping: float = 1.0,
    dtype: str = "fp32",
    zero: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    coalesce: bool = False,
) -> Variant:
    """A variant with the config that fits it."""
    values: dict[str, Any] = {}
    if engine in ("stock", "token"):
        values = {
            "train_micro_batch_size_per_gpu": micro,
            "gradient_accumulation_steps": accumulation,
            "gradient_clipping": clipping,
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
            "zero_optimization": {
                "stage": stage,
                "reduce_bucket_size": 10**7,
                "allgather_bucket_size": 10**7,
                **({"stage3_param_persistence_threshold": 0} if stage == 3 else {}),
                **(zero or {}),
            },
            **({} if dtype == "fp32" else {dtype: {"enabled": True}}),
            **({"fp16": {"enabled": True, "initial_scale_power": 8}} if dtype == "fp16" else {}),
            **(config or {}),
        }
    return Variant(
        name=name or " ".join([f"zero-{stage}"] * (stage is not None) + [engine]),
        engine=engine,
        stage=stage,
        micro_batch_size=micro,
        gradient_accumulation_steps=accumulation,
        config=values,
        coalesce=coalesce,
    )


def counts(counted: Iterable[CollectiveCount]) -> dict[tuple[str, str], tuple[float, float]]:
    """Calls and bytes by (moment, kind)."""
    return {(count.moment, count.kind): (count.calls, count.bytes) for count in counted}
