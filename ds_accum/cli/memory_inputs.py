"""The TrainingSetup that `ds-accum memory` works with: from a config, from options over it, or from options alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ds_accum.errors import ConfigError

if TYPE_CHECKING:
    from ds_accum.batch import BatchLedger
    from ds_accum.config.launch import Launch
    from ds_accum.plan.training import TrainingSetup

__all__ = ["training_of"]

_DTYPES = {
    "fp32": "fp32",
    "float32": "fp32",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "fp16": "fp16",
    "float16": "fp16",
}
_OPTIMIZERS = ("adam", "adamw", "lamb", "lion", "sgd", "adagrad", "rmsprop", "muon")

# Key of zero_optimization -> field of TrainingSetup, where the value is a whole number or a switch.
_ZERO_KEYS = {
    "reduce_bucket_size": "reduce_bucket_size",
    "stage3_max_live_parameters": "max_live_parameters",
    "max_live_parameters": "max_live_parameters",
    "stage3_prefetch_bucket_size": "prefetch_bucket_size",
    "prefetch_bucket_size": "prefetch_bucket_size",
    "stage3_param_persistence_threshold": "param_persistence_threshold",
    "param_persistence_threshold": "param_persistence_threshold",
}
_ZERO_SWITCHES = {"overlap_comm": "overlap_comm", "contiguous_gradients": "contiguous_gradients"}


def training_of(
    values: Mapping[str, Any], launch: Launch, ledger: BatchLedger, options: Mapping[str, Any]
) -> TrainingSetup:
    """The setup; `values` are the root keys of a config, {} without one. Raises ConfigError."""
    from ds_accum.plan.training import TrainingSetup

    given = {**_from_config(values, launch), **_from_options(options)}
    if "optimizer" not in given:
        given |= _optimizer(_block(values, "optimizer"))
    given.setdefault("dtype", "bf16")
    given.setdefault("zero_stage", 0)
    if options["virtual_stages"] is not None:
        given["virtual_stages"] = options["virtual_stages"]
    return TrainingSetup(
        micro_batch_size=ledger.micro_batch_size,
        gradient_accumulation_steps=ledger.gradient_accumulation_steps,
        recompute=options["recompute"],
        flash_attention=options["attention"] == "flash",
        fused_kernels=options["kernels"] == "fused",
        dropout=options["dropout"],
        megatron_sequence_parallel=options["sequence_parallel_norms"],
        schedule=options["schedule"],
        sequence_length=options["sequence_length"],
        **given,
    )


def _from_options(options: Mapping[str, Any]) -> dict[str, Any]:
    names = ("zero_stage", "dtype", "grad_accum_dtype", "optimizer", "offload_optimizer", "offload_parameters")
    return {name: options[name] for name in names if options[name] is not None}


def _from_config(values: Mapping[str, Any], launch: Launch) -> dict[str, Any]:
    if not values:
        return {}
    from ds_accum.cli.ledger_inputs import facts_of

    facts = facts_of(values, launch)
    zero = _block(values, "zero_optimization")
    found: dict[str, Any] = {"zero_stage": facts.zero_stage or 0, "dtype": facts.dtype}
    if facts.gradient_dtype is not None:
        found["communication_dtype"] = facts.gradient_dtype
    accumulated = _block(values, "data_types").get("grad_accum_dtype")
    if isinstance(accumulated, str) and accumulated in _DTYPES:
        found["grad_accum_dtype"] = _DTYPES[accumulated]
    for key, name in _ZERO_KEYS.items():
        number = _whole(zero.get(key))
        if number is not None:
            found[name] = number
    for key, name in _ZERO_SWITCHES.items():
        if isinstance(zero.get(key), bool):
            found[name] = zero[key]
    if facts.zero_stage:
        found["offload_optimizer"] = _device(zero, "offload_optimizer", "cpu_offload")
    if facts.zero_stage == 3:
        found["offload_parameters"] = _device(zero, "offload_param", "cpu_offload_param")
    return found


def _optimizer(block: Mapping[str, Any]) -> dict[str, str]:
    """The field of a config's optimizer; empty without one."""
    name = block.get("type")
    if not isinstance(name, str):
        return {}
    if name.lower() not in _OPTIMIZERS:
        raise ConfigError(
            f"what the optimizer {name[:40]} keeps is not known", remedy="say what it is like with --optimizer"
        )
    momentum = _block(block, "params").get("momentum")
    is_moving = name.lower() == "sgd" and isinstance(momentum, int | float) and momentum > 0
    return {"optimizer": "sgd_momentum" if is_moving else name.lower()}


def _device(zero: Mapping[str, Any], key: str, old_key: str) -> str:
    device = _block(zero, key).get("device", "none")
    if isinstance(device, str) and device in ("cpu", "nvme"):
        return device
    return "cpu" if zero.get(old_key) is True else "none"


def _whole(value: object) -> int | None:
    """As DeepSpeed reads it: 5e8 is a whole number too."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if value == value and abs(value) < 10**15 and value == int(value) else None


def _block(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = values.get(key)
    return value if isinstance(value, Mapping) else {}
