"""Options -> RunSpec: the variants of a comparison, each with its own complete DeepSpeed config.

global batch = micro batch x accumulation x world size        the same in every variant
variants     = baselines, and stages x engines x variations, each for every split of the global batch
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ds_accum.batch import BatchLedger
from ds_accum.compare.formulas import is_coalesced
from ds_accum.compare.spec import Dtype, EngineKind, RunSpec, Variant, Workload
from ds_accum.compare.varying import Variation, combinations, set_values, short_names
from ds_accum.config.document import read_bytes
from ds_accum.config.embedded import find_configs
from ds_accum.config.launch import Launch
from ds_accum.config.paths import mapping_at, value_at
from ds_accum.config.resolve import ACCUMULATION, GLOBAL_BATCH, MICRO_BATCH, resolve_batch
from ds_accum.config.schema import newest_version, schema_for
from ds_accum.errors import BatchError, ConfigError, UsageError

__all__ = ["BASELINES", "DEFAULT_CONFIG", "ENGINES", "Request", "Split", "make_spec", "parse_split", "read_config"]

BASELINES: tuple[EngineKind, ...] = ("ddp", "ddp-every", "fsdp", "fsdp-every", "single")
ENGINES: tuple[EngineKind, ...] = ("stock", "token")

# What is compared without a file. The threshold is 0 because the built-in model is so small that ZeRO-3 would keep all
# of it on every rank, and so gather nothing.
DEFAULT_CONFIG: Mapping[str, Any] = {
    "gradient_clipping": 1.0,
    "zero_optimization": {"stage3_param_persistence_threshold": 0},
}
DEFAULT_MICRO_BATCH = 2
DEFAULT_ACCUMULATION = 4

# Left out of every variant's config: the worker brings the optimizer, the learning rate is constant, and monitors write
# files of their own.
_LEFT_OUT = ("optimizer", "scheduler", "tensorboard", "wandb", "csv_monitor", "comet", "flops_profiler")
_SILENT = 1_000_000
"""Steps between two prints of DeepSpeed's: more than are ever run."""


class Split(NamedTuple):
    """How each rank's part of the global batch is cut."""

    micro_batch_size: int
    gradient_accumulation_steps: int

    def __str__(self) -> str:
        return f"{self.micro_batch_size}x{self.gradient_accumulation_steps}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the options ask for; None where the config or a default decides."""

    world_size: int = 2
    stages: Sequence[int] = (0, 1, 2, 3)
    engines: Sequence[EngineKind] = ENGINES
    baselines: Sequence[EngineKind] = ("ddp", "fsdp", "single")
    variations: Sequence[Variation] = ()
    splits: Sequence[Split] = ()
    coalesce: bool = False
    """Also each variant of ZeRO-2 and 3 with a training loop that holds its reductions back to the boundary."""

    micro_batch_size: int | None = None
    gradient_accumulation_steps: int | None = None
    steps: int = 10
    warmup: int = 2
    optimizer: str = "sgd"
    learning_rate: float = 0.1
    workload: Workload = field(default_factory=Workload)
    device: Literal["cpu", "cuda"] = "cpu"
    timeout_s: float = 120.0


def read_config(path: Path) -> Mapping[str, Any]:
    """The root keys of a config, wherever it stands in the file, without "auto" that a framework fills in later.

    Raises UsageError where the file can't be read, ConfigError where it is broken or holds no config.
    """
    try:
        document = read_bytes(path.read_bytes(), filename=str(path))
    except OSError as error:
        raise UsageError.because(f"can't read config {path}", error) from error
    if document.problems:
        problem = document.problems[0]
        at = document.position(problem.span.start)
        raise ConfigError(f"{path}:{at.line}:{at.column}: {problem.message}", remedy=problem.help)
    config = next(find_configs(document, Launch()), None)
    if config is None:
        raise ConfigError(f"{path} holds no DeepSpeed config", remedy="give the file that DeepSpeed itself reads")
    return config.values


def parse_split(text: str) -> Split:
    """`"4x8"` -> micro batch 4, accumulation 8. Raises UsageError."""
    micro, _, accumulation = text.strip().lower().partition("x")
    if not (micro.isdecimal() and accumulation.isdecimal() and int(micro) and int(accumulation)):
        raise UsageError(
            f"{text!r} is no split of the batch", remedy="write micro batch x accumulation, as in 4x8, each at least 1"
        )
    return Split(int(micro), int(accumulation))


def make_spec(request: Request, config: Mapping[str, Any] | None = None) -> RunSpec:
    """The whole comparison, from the options and the root keys of a config (None: a built-in one).

    Raises BatchError where the batch does not add up or a split changes it, ConfigError and UsageError for the rest.
    """
    values = DEFAULT_CONFIG if config is None else config
    ledger = _ledger(values, request)
    splits = _splits(ledger, request)
    variants = (*_deepspeed_variants(values, splits, request), *_baselines(splits, request))
    if not variants:
        raise UsageError("there is nothing to compare", remedy="ask for stages and engines, or for baselines")
    return RunSpec(
        world_size=request.world_size,
        global_batch_size=splits[0].micro_batch_size * splits[0].gradient_accumulation_steps * request.world_size,
        steps=request.steps,
        # The last step's time counts even where few are run.
        warmup=min(request.warmup, request.steps - 1),
        dtype=_dtype(values),
        gradient_clipping=_gradient_clipping(values),
        optimizer=request.optimizer,
        learning_rate=request.learning_rate,
        workload=request.workload,
        variants=variants,
        device=request.device,
        timeout_s=request.timeout_s,
    )


# ----------------------------------------------------------------------------------------------------------- the batch


def _ledger(values: Mapping[str, Any], request: Request) -> BatchLedger:
    """The batch of the config as DeepSpeed reads it, with the options over it and defaults where it says nothing."""
    batch = {key: value for key, value in values.items() if value is not None}
    launch = Launch(world_size=request.world_size)
    given = {MICRO_BATCH: request.micro_batch_size, ACCUMULATION: request.gradient_accumulation_steps}
    asked = {key: size for key, size in given.items() if size is not None}
    if asked and GLOBAL_BATCH in batch:
        # The option changes one number; the other stays what the file says or comes to.
        derived = resolve_batch(batch, launch).ledger()
        if derived is not None:
            batch[MICRO_BATCH] = derived.micro_batch_size
            batch[ACCUMULATION] = derived.gradient_accumulation_steps
        del batch[GLOBAL_BATCH]
    batch |= asked
    if GLOBAL_BATCH not in batch:
        batch = {MICRO_BATCH: DEFAULT_MICRO_BATCH, ACCUMULATION: DEFAULT_ACCUMULATION, **batch}

    resolution = resolve_batch(batch, launch)
    ledger = resolution.ledger()
    if ledger is None:
        if resolution.imbalance is None:
            key = resolution.fault_key or "the batch"
            raise ConfigError(
                f"{key} is {json.dumps(batch.get(key))}: no batch follows from it at world size {request.world_size}",
                remedy="give whole numbers of at least 1, or --micro-batch and --accumulation",
            )
        # Whoever compares on two ranks what is meant for sixty-four need not edit the file.
        raise BatchError(
            f"{resolution.imbalance.describe()}; {resolution.imbalance.describe_legal()}",
            remedy="give --world-size, or --micro-batch and --accumulation for a comparison of another batch",
            imbalance=resolution.imbalance,
        )
    if ledger.data_parallel_size != request.world_size:
        raise ConfigError(
            f"the config makes data parallel {ledger.data_parallel_size} of world size {request.world_size}",
            remedy="leave sequence and data parallel sizes out: a comparison is of data parallel training",
        )
    return ledger


def _splits(ledger: BatchLedger, request: Request) -> tuple[Split, ...]:
    """The cuts of the global batch; raises BatchError for one of another batch."""
    if not request.splits:
        return (Split(ledger.micro_batch_size, ledger.gradient_accumulation_steps),)
    for split in request.splits:
        cut = BatchLedger(
            micro_batch_size=split.micro_batch_size,
            gradient_accumulation_steps=split.gradient_accumulation_steps,
            data_parallel_size=request.world_size,
        )
        if cut.global_batch_size != ledger.global_batch_size:
            per_rank = ledger.micro_batch_size * ledger.gradient_accumulation_steps
            raise BatchError(
                f"split {split} is another global batch: {cut.describe()}, but the comparison's is"
                f" {ledger.global_batch_size}",
                remedy=f"give splits whose product is {per_rank}, or change it with --micro-batch and --accumulation",
            )
    return tuple(dict.fromkeys(request.splits))


# -------------------------------------------------------------------------------------------------------- the variants


def _deepspeed_variants(values: Mapping[str, Any], splits: Sequence[Split], request: Request) -> Iterator[Variant]:
    choices = list(combinations(request.variations))
    names = short_names([variation.key for variation in request.variations])
    seen = set()
    for split in splits:
        for choice in choices:
            for stage in dict.fromkeys(request.stages):
                for engine in dict.fromkeys(request.engines):
                    # The block has no meaning without our engine: what differs in it alone is one variant of stock's.
                    varied = {key: value for key, value in choice.items() if engine == "token" or not _is_ours(key)}
                    words = [f"zero-{stage}", engine, *([str(split)] if len(splits) > 1 else [])]
                    words += [f"{names[key]}={_shown(value)}" for key, value in varied.items()]
                    name = " ".join(words)
                    if name in seen:
                        continue
                    seen.add(name)
                    variant = Variant(
                        name=name,
                        engine=engine,
                        stage=stage,
                        micro_batch_size=split.micro_batch_size,
                        gradient_accumulation_steps=split.gradient_accumulation_steps,
                        config=_config(values, stage, engine, split, varied, request),
                        varied=varied,
                    )
                    yield variant
                    # ZeRO 0 and 1 reduce at the boundary anyway; so does a config that asks us for it.
                    if request.coalesce and stage in (2, 3) and not is_coalesced(variant):
                        yield replace(variant, name=f"{name} coalesced", coalesce=True)


def _baselines(splits: Sequence[Split], request: Request) -> Iterator[Variant]:
    for baseline in dict.fromkeys(request.baselines):
        # The truth sees the whole batch at once, however it is cut.
        for split in splits[:1] if baseline == "single" else splits:
            yield Variant(
                name=baseline if len(splits) == 1 or baseline == "single" else f"{baseline} {split}",
                engine=baseline,
                stage=None,
                micro_batch_size=split.micro_batch_size,
                gradient_accumulation_steps=split.gradient_accumulation_steps,
            )


def _config(
    values: Mapping[str, Any],
    stage: int,
    engine: EngineKind,
    split: Split,
    varied: Mapping[str, Any],
    request: Request,
) -> dict[str, Any]:
    """What DeepSpeed is given: the user's config with this variant's choices over it."""
    config = {key: value for key, value in values.items() if key not in _LEFT_OUT}
    zero = dict(mapping_at(values, ("zero_optimization",)))
    config |= {
        GLOBAL_BATCH: split.micro_batch_size * split.gradient_accumulation_steps * request.world_size,
        MICRO_BATCH: split.micro_batch_size,
        ACCUMULATION: split.gradient_accumulation_steps,
        "steps_per_print": _SILENT,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {**zero, "stage": stage},
    }
    if "gradient_clipping" not in config:
        config["gradient_clipping"] = _gradient_clipping(values)
    if engine == "token":
        block = dict(mapping_at(values, ("ds_accum",)))
        if request.workload.kind == "text":
            # The built-in text's labels are those of the next position already.
            block["counting"] = {"labels": "labels", "shift": False}
        config["ds_accum"] = {key: value for key, value in block.items() if key != "log"}
    else:
        config.pop("ds_accum", None)
    set_values(config, varied)
    if value_at(config, ("zero_optimization", "offload_optimizer", "device")) not in (None, "none"):
        # DeepSpeed would insist on its own CPU Adam instead of the optimizer that all variants share.
        config.setdefault("zero_force_ds_cpu_optimizer", False)
    return config


def _is_ours(key: str) -> bool:
    return key.partition(".")[0] == "ds_accum"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _dtype(values: Mapping[str, Any]) -> Dtype:
    if value_at(values, ("bf16", "enabled")) is True or value_at(values, ("bfloat16", "enabled")) is True:
        return "bf16"
    return "fp16" if value_at(values, ("fp16", "enabled")) is True else "fp32"


def _gradient_clipping(values: Mapping[str, Any]) -> float:
    """The norm that the config clips at, 0 for none; DeepSpeed's default where it does not say."""
    norm = values.get("gradient_clipping")
    if isinstance(norm, bool) or not isinstance(norm, int | float):
        # The linter refuses what is no number, so what stands here then is never used.
        norm = schema_for(newest_version()).block("").defaults["gradient_clipping"]
    return float(norm)
