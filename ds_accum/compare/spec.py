"""RunSpec: what a comparison runs. Made from options once, handed to every worker as JSON, kept in the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Dtype", "EngineKind", "RunSpec", "Variant", "Workload"]

EngineKind = Literal["stock", "token", "ddp", "ddp-every", "fsdp", "fsdp-every", "single"]
"""Who trains. `stock` and `token`: DeepSpeed without and with ds-accum. `ddp` synchronizes once a window (no_sync),
`ddp-every` each micro-batch; `fsdp` (FSDP2) likewise defers its reduction, `fsdp-every` does not. `single` is the
truth: one process, float64, the whole batch at once."""

Dtype = Literal["fp32", "bf16", "fp16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is trained on what; the same samples for every variant, however the batch is cut."""

    kind: Literal["text", "file", "huggingface"] = "text"
    """`text`: a causal transformer on generated text of uneven lengths. `file`: the user's own, `path` is
    "file.py:function". `huggingface`: `path` is a folder or a config.json."""

    path: str | None = None
    layers: int = 2
    width: int = 64
    heads: int = 4
    vocabulary: int = 256
    sequence_length: int = 64
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One row of the comparison."""

    name: str
    """Unique, for people: "zero-2 stock", "zero-3 token overlap_comm=false", "ddp", "single"."""

    engine: EngineKind
    stage: int | None
    """ZeRO stage of `stock` and `token`; None for the others."""

    micro_batch_size: int
    """Samples per forward per rank."""

    gradient_accumulation_steps: int
    config: Mapping[str, Any] = field(default_factory=dict)
    """The DeepSpeed config as it is given to `initialize`; empty for what is not DeepSpeed."""

    varied: Mapping[str, Any] = field(default_factory=dict)
    """What `--vary` set, by dotted key."""

    coalesce: bool = False
    """DeepSpeed reduces once a window, in `engine.coalesce_grad_reduction()`; ZeRO 1 to 3 only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """The whole comparison."""

    world_size: int
    global_batch_size: int
    """Samples per optimizer step: micro_batch_size x gradient_accumulation_steps x world_size in every variant."""

    steps: int
    """Optimizer steps that are compared, all variants in turn."""

    warmup: int = 2
    """Of these, the first ones whose times don't count."""

    dtype: Dtype = "fp32"
    gradient_clipping: float = 1.0
    optimizer: str = "sgd"
    """"sgd" (momentum 0.9) or "adamw": torch's own, the same for every variant."""

    learning_rate: float = 0.1
    workload: Workload = field(default_factory=Workload)
    variants: tuple[Variant, ...] = ()
    device: Literal["cpu", "cuda"] = "cpu"
    timeout_s: float = 120.0
    """Seconds without progress after which a launch is given up."""
