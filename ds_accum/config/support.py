"""Which settings DeepSpeed and ds-accum's own engine can't run together: asked by the linter and by the engine alike.

    uses_bf16_optimizer(config)                          # ZeRO-1 that is really another optimizer class
    [refusal.name for refusal in engine_refusals(config)]    # what `ds_accum.initialize` won't start with

All of it is read off a `DeepSpeedConfig`, that is off the values as DeepSpeed takes them. A predicate answers for the
release that the config is read for; where that release differs from 0.19.8, the source says which one changed it. A
value that DeepSpeed refuses by itself counts as absent: its own rule reports it, and nothing is concluded from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from ds_accum.config.launch import Launch
from ds_accum.config.model import BlockReading, DeepSpeedConfig, Path

__all__ = [
    "DTYPE_WORDS",
    "ENGINE_REFUSALS",
    "Dtype",
    "EngineRefusal",
    "accumulates_in",
    "autocasts_to_fp16",
    "averages_gradients",
    "builds_cpu_adam",
    "divides_before_reducing",
    "dtype_of",
    "engine_refusals",
    "has_optimizer",
    "keeps_fp16_master_weights",
    "model_dtype",
    "optimizer_device",
    "overlaps_communication",
    "parameter_device",
    "scatters_scaled_gradients",
    "uses_bf16_optimizer",
    "zenflow",
]

Dtype = Literal["fp32", "fp16", "bf16", "int8"]

# The words of `DtypeEnum` (runtime/config.py); all other words, upper case among them, are a ValueError.
DTYPE_WORDS: Mapping[str, Dtype] = {
    **dict.fromkeys(("torch.float32", "fp32", "float32", "float"), "fp32"),
    **dict.fromkeys(("torch.float16", "fp16", "float16", "half"), "fp16"),
    **dict.fromkeys(("torch.bfloat16", "bf16", "bfloat16"), "bf16"),
    **dict.fromkeys(("torch.int8", "int8"), "int8"),
}

_ZERO = "zero_optimization"


def dtype_of(word: Any) -> Dtype | None:
    """The dtype that a value of the config names, None if it names none."""
    return DTYPE_WORDS.get(word) if isinstance(word, str) else None


# --- precision --------------------------------------------------------------------------------------------------------


def model_dtype(config: DeepSpeedConfig) -> Dtype:
    """The precision of the parameters (`get_data_types`, runtime/engine.py)."""
    if config.enabled("fp16"):
        return "fp16"
    return "bf16" if config.enabled("bf16") else "fp32"


def accumulates_in(config: DeepSpeedConfig) -> Dtype | None:
    """The dtype that micro-batches add up in, None where the config names one that there is not.

    Where it names none, the model's own; before 0.17.6, fp32 for bf16 without ZeRO.
    """
    word = config.block("data_types").get("grad_accum_dtype")
    if word is not None:
        return dtype_of(word)
    dtype = model_dtype(config)
    if dtype == "bf16" and config.zero_stage == 0 and config.schema.version < (0, 17, 6):
        return "fp32"
    return dtype


def autocasts_to_fp16(config: DeepSpeedConfig) -> bool:
    """Whether torch computes in fp16 where it may, and torch's GradScaler scales the loss for it."""
    autocast = config.block("torch_autocast")
    known = "torch_autocast" in config.top.block.keys
    return known and bool(autocast.get("enabled")) and dtype_of(autocast.get("dtype")) == "fp16"


def keeps_fp16_master_weights(config: DeepSpeedConfig) -> bool:
    """Whether `fp16_master_weights_and_grads` has a say: since 0.17.1 also where fp16 itself is off."""
    fp16 = config.block("fp16")
    return bool(fp16.get("fp16_master_weights_and_grads")) and (fp16.block.kind == "model" or config.enabled("fp16"))


# --- ZeRO, offload and the optimizer ----------------------------------------------------------------------------------


def optimizer_device(config: DeepSpeedConfig) -> str | None:
    """Where the optimizer states are kept: "none" (the accelerator), "cpu", "nvme"; None where that is refused."""
    return _offload_device(config, "offload_optimizer", "cpu_offload")


def parameter_device(config: DeepSpeedConfig) -> str | None:
    """Where ZeRO-3 keeps the parameters: "none" (the accelerator), "cpu", "nvme"; None where that is refused."""
    return _offload_device(config, "offload_param", "cpu_offload_param")


def _offload_device(config: DeepSpeedConfig, block: str, deprecated: str) -> str | None:
    # DeepSpeed turns the deprecated switch into the block (`_process_deprecated_field`, runtime/config_utils.py).
    if config.block(_ZERO).get(deprecated):
        return "cpu"
    device: str | None = config.block(f"{_ZERO}.{block}").get("device")
    return device


def zenflow(config: DeepSpeedConfig) -> BlockReading | None:
    """ZenFlow's settings; None where it is off, which only its absence makes it, or where this release has none."""
    if "zenflow" not in config.block(_ZERO).block.keys:
        return None
    reading = config.block(f"{_ZERO}.zenflow")
    return reading if reading.present and reading.is_mapping else None


def uses_bf16_optimizer(config: DeepSpeedConfig) -> bool:
    """Whether ZeRO-1 is really `BF16_Optimizer` (`_do_optimizer_sanity_check`, runtime/engine.py).

    So it is for bf16 parameters with fp32 accumulation, unless the optimizer states are offloaded to the CPU; those on
    NVMe count as not offloaded here.
    """
    return (
        config.zero_stage == 1
        and model_dtype(config) == "bf16"
        and accumulates_in(config) == "fp32"
        and optimizer_device(config) != "cpu"
    )


def overlaps_communication(config: DeepSpeedConfig) -> bool | None:
    """The effective `overlap_comm`: on at stage 3 only, unless the config says so; None where its value is refused."""
    values = config.block(_ZERO).values
    if "overlap_comm" not in values or config.zero_stage is None:
        return None
    overlap = values["overlap_comm"]
    return config.zero_stage == 3 if overlap is None else bool(overlap)


def has_optimizer(config: DeepSpeedConfig, launch: Launch) -> bool | None:
    """Whether DeepSpeed gets an optimizer, one that the config names or the script's own; None: that is unknown."""
    if config.block("optimizer").get("type"):
        return True
    return launch.client_optimizer


def builds_cpu_adam(config: DeepSpeedConfig) -> bool:
    """Whether the optimizer that the config names becomes DeepSpeedCPUAdam (`get_optimizer_configuration`).

    It does for Adam and AdamW while the states are offloaded, not for torch's own Adam and not under ZenFlow.
    """
    optimizer = config.block("optimizer")
    name, params = optimizer.get("type"), optimizer.get("params")
    return (
        isinstance(name, str)
        and name.lower() in ("adam", "adamw")
        and not (isinstance(params, Mapping) and params.get("torch_adam"))
        and optimizer_device(config) in ("cpu", "nvme")
        and zenflow(config) is None
    )


# --- the reduction of gradients ---------------------------------------------------------------------------------------


def averages_gradients(config: DeepSpeedConfig) -> bool:
    """Whether reduced gradients are divided by the ranks; since 0.19.6 the config can ask for their sum."""
    operation = config.top.get("gradient_allreduce_op")
    known = "gradient_allreduce_op" in config.top.block.keys
    return not (known and isinstance(operation, str) and operation.lower() == "sum")


def scatters_scaled_gradients(config: DeepSpeedConfig) -> bool:
    """Whether ZeRO scatters averaged gradients in a way that allows no factor of the config's own.

    Both `gradient_predivide_factor` other than 1 and `prescale_gradients` are refused then (the constructors in
    zero/stage_1_and_2.py and zero/stage3.py). ZeRO-1 takes both keys and ignores them.
    """
    return (
        config.zero_stage in (2, 3)
        and bool(config.block(_ZERO).get("reduce_scatter"))
        and (config.zero_stage == 3 or averages_gradients(config))
    )


def divides_before_reducing(config: DeepSpeedConfig) -> bool:
    """Whether the reduction of a step looks at `gradient_predivide_factor` at all.

    `allreduce_bucket` (runtime/engine.py) does for stage 0 and `BF16_Optimizer`; `gradient_reduction_w_predivide` for
    ZeRO-1/2 without reduce-scatter, but not for gradients that are not contiguous; ZeRO-3 without reduce-scatter.
    """
    if not averages_gradients(config) or config.top.get("prescale_gradients"):
        return False
    zero = config.block(_ZERO)
    if config.zero_stage == 0 or uses_bf16_optimizer(config):
        return True
    if zero.get("reduce_scatter") is not False:
        return False
    if config.zero_stage in (1, 2):
        # Offload makes gradients contiguous whatever the config says; ZenFlow fails here for a reason of its own.
        contiguous = zero.get("contiguous_gradients") or optimizer_device(config) in ("cpu", "nvme")
        return bool(contiguous) and zenflow(config) is None
    return config.zero_stage == 3


# --- what ds-accum's engine refuses -----------------------------------------------------------------------------------


class EngineRefusal(NamedTuple):
    """One set-up that `ds_accum.initialize` won't start with.

    `path` is the setting that asks for it, `applies` whether a config does, `reason` a clause that can follow
    "because", `remedy` what to do instead.
    """

    name: str
    path: Path
    applies: Callable[[DeepSpeedConfig], bool]
    reason: str
    remedy: str


def engine_refusals(config: DeepSpeedConfig) -> tuple[EngineRefusal, ...]:
    """Everything in a config that ds-accum's engine refuses, in the order of the table."""
    return tuple(refusal for refusal in ENGINE_REFUSALS if refusal.applies(config))


def _compiles_deep(config: DeepSpeedConfig) -> bool:
    # The block had other keys, and none of this meaning, before 0.16.6.
    compiling = config.block("compile")
    return "deepcompile" in compiling.block.keys and bool(compiling.get("deepcompile"))


def _optimizes_in_one_bit(config: DeepSpeedConfig) -> bool:
    name = config.block("optimizer").get("type")
    return isinstance(name, str) and name.lower() in ("onebitadam", "onebitlamb", "zerooneadam")


def _offloads_speculatively(config: DeepSpeedConfig) -> bool:
    return config.zero_stage == 3 and bool(config.block(f"{_ZERO}.offload_optimizer").get("super_offload"))


def _sums_without_a_factor(config: DeepSpeedConfig) -> bool:
    if averages_gradients(config):
        return False
    return uses_bf16_optimizer(config) or (config.zero_stage == 0 and model_dtype(config) == "fp32")


def _meshes_sequence_parallel_ranks(config: DeepSpeedConfig) -> bool:
    known = config.top.block.keys
    if "sequence_parallel_size" not in known or "data_parallel_size" not in config.values:
        return False
    size = config.values.get("sequence_parallel_size")
    return isinstance(size, int) and size > 1


def _flattens_inside_a_graph(config: DeepSpeedConfig) -> bool:
    # `DeepSpeedZeroOptimizer.__init__`: since 0.18.7 on the accelerator where it has the memory, detached since 0.19.0.
    return config.zero_stage in (1, 2) and not uses_bf16_optimizer(config) and _is_between(config, (0, 18, 7))


def _loses_micro_batches_with_offload(config: DeepSpeedConfig) -> bool:
    offloads = optimizer_device(config) in ("cpu", "nvme") and zenflow(config) is None
    return config.zero_stage in (1, 2) and offloads and _is_between(config, (0, 15, 2))


def _reduces_before_it_accumulates(config: DeepSpeedConfig) -> bool:
    at_once = config.block("bf16").get("immediate_grad_update")
    return uses_bf16_optimizer(config) and not at_once and _is_between(config, (0, 18, 3))


def _is_between(config: DeepSpeedConfig, since: tuple[int, int, int]) -> bool:
    return since <= config.schema.version < (0, 19, 0)


ENGINE_REFUSALS: tuple[EngineRefusal, ...] = (
    EngineRefusal(
        name="DeepCompile",
        path=("compile", "deepcompile"),
        applies=_compiles_deep,
        reason="its compiled graph reduces gradients by itself, where no factor of the engine's reaches",
        remedy="turn it off, and call engine.compile()",
    ),
    EngineRefusal(
        name="torch_autocast in fp16",
        path=("torch_autocast", "dtype"),
        applies=autocasts_to_fp16,
        reason="torch's GradScaler then scales the loss, and the engine's own weight would replace that scale",
        remedy='use "bf16" here, or the fp16 block',
    ),
    EngineRefusal(
        name="ZenFlow",
        path=(_ZERO, "zenflow"),
        applies=lambda config: zenflow(config) is not None,
        reason="it updates a part of the parameters before the accumulation window is complete",
        remedy="remove the zenflow block; offload_optimizer works without it",
    ),
    EngineRefusal(
        name="SuperOffload",
        path=(_ZERO, "offload_optimizer", "super_offload"),
        applies=_offloads_speculatively,
        reason="it starts the update while the last backward still runs, before the tokens of the window are known",
        remedy="remove super_offload; offload_optimizer works without it",
    ),
    EngineRefusal(
        name="1-bit optimizers",
        path=("optimizer", "type"),
        applies=_optimizes_in_one_bit,
        reason="they reduce a compressed momentum in place of the gradient",
        remedy="use Adam, AdamW or LAMB",
    ),
    EngineRefusal(
        name="summed gradients without a factor",
        path=("gradient_allreduce_op",),
        applies=_sums_without_a_factor,
        reason="DeepSpeed multiplies summed gradients by nothing here, so nothing can carry the weight of the window",
        remedy='use "mean": the engine weights by tokens whichever it is',
    ),
    EngineRefusal(
        name="sequence parallelism through the config",
        path=("sequence_parallel_size",),
        applies=_meshes_sequence_parallel_ranks,
        reason="DeepSpeed then reduces over the data parallel ranks alone, and sequence parallel ranks drift apart",
        remedy="pass an mpu to initialize instead of the two sizes in the config",
    ),
    EngineRefusal(
        name="ZeRO-1 and 2 on DeepSpeed 0.18.7 to 0.18.9",
        path=(_ZERO, "stage"),
        applies=_flattens_inside_a_graph,
        reason="those releases gather parameters into views of a graph, which torch refuses in the first step",
        remedy="install DeepSpeed 0.19.0 or newer, or use ZeRO-3",
    ),
    EngineRefusal(
        name="ZeRO-1 and 2 with offload_optimizer before DeepSpeed 0.19.0",
        path=(_ZERO, "offload_optimizer"),
        applies=_loses_micro_batches_with_offload,
        reason="DeepSpeed loses micro-batches of a step there before 0.19.0 (DeepSpeed PR #7967)",
        remedy="install DeepSpeed 0.19.0 or newer, or use ZeRO-3",
    ),
    EngineRefusal(
        name="BF16_Optimizer before DeepSpeed 0.19.0",
        path=("data_types", "grad_accum_dtype"),
        applies=_reduces_before_it_accumulates,
        reason="DeepSpeed leaves the last micro-batch of a step out of the reduction there before 0.19.0 (DeepSpeed PR"
        " #7985)",
        remedy="install DeepSpeed 0.19.0 or newer, or use ZeRO-2",
    ),
)
