"""The TrainingSetup that `ds-accum memory` works with: from a config, from options over it, or from options alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ds_accum.cli.ledger_inputs import block_of
from ds_accum.errors import ConfigError

if TYPE_CHECKING:
    from ds_accum.batch import BatchLedger, ParallelLayout
    from ds_accum.config.launch import Launch
    from ds_accum.plan.training import TrainingSetup

__all__ = ["training_of", "training_over_stages"]

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
    values: Mapping[str, Any], launch: Launch, layout: ParallelLayout, ledger: BatchLedger, options: Mapping[str, Any]
) -> TrainingSetup:
    """The setup; `values` are the root keys of a config, {} without one. Raises ConfigError.

    A command that lacks some of the options leaves them out of `options`.
    """
    from ds_accum.plan.layouts import splits_sequence
    from ds_accum.plan.training import TrainingSetup

    given = {**_from_config(values, launch), **_given(options, _OVER_THE_CONFIG), **_given(options, _OPTIONS)}
    if options.get("grad_accum_dtype") is not None:
        given["communication_dtype"] = options["grad_accum_dtype"]
    if "optimizer" not in given:
        given |= _optimizer(block_of(values, "optimizer"))
    given.setdefault("dtype", "bf16")
    given.setdefault("zero_stage", 0)
    if not values and given["zero_stage"] > 0:
        given = {"grad_accum_dtype": "fp32", "communication_dtype": "fp32", **given}
    for field, option, meant in _SWITCHES:
        if options.get(option) is not None:
            given[field] = options[option] == meant
    length = options["sequence_length"]
    given.setdefault("megatron_sequence_parallel", splits_sequence(layout, length))
    return TrainingSetup(
        micro_batch_size=ledger.micro_batch_size,
        gradient_accumulation_steps=ledger.gradient_accumulation_steps,
        sequence_length=length,
        **given,
    )


def training_over_stages(
    values: Mapping[str, Any], launch: Launch, layout: ParallelLayout, ledger: BatchLedger, options: Mapping[str, Any]
) -> TrainingSetup:
    """The setup whose stage is then varied; an optimizer that is not known is taken for adamw. Raises ConfigError."""
    name = block_of(values, "optimizer").get("type")
    known = not isinstance(name, str) or name.lower() in _OPTIMIZERS
    # Stage 3 refuses nothing that a lower one can.
    over = {"zero_stage": 3, "optimizer": None if known else "adamw"}
    return training_of(values, launch, layout, ledger, {**options, **over})


_OVER_THE_CONFIG = ("zero_stage", "dtype", "grad_accum_dtype", "optimizer", "offload_optimizer", "offload_parameters")
_OPTIONS = (
    "recompute",
    "dropout",
    "sequence_norm_gradients",
    "expert_capacity_factor",
    "layers_per_stage",
    "schedule",
    "virtual_stages",
)
_SWITCHES = (
    ("flash_attention", "attention", "flash"),
    ("fused_kernels", "kernels", "fused"),
    ("megatron_sequence_parallel", "megatron_sequence_parallel", "yes"),
)


def _given(options: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: options[name] for name in names if options.get(name) is not None}


def _from_config(values: Mapping[str, Any], launch: Launch) -> dict[str, Any]:
    if not values:
        return {}
    from ds_accum.cli.ledger_inputs import facts_of
    from ds_accum.config.support import dtype_of

    facts = facts_of(values, launch)
    zero = block_of(values, "zero_optimization")
    found: dict[str, Any] = {"zero_stage": facts.zero_stage or 0, "dtype": facts.dtype}
    if facts.gradient_dtype is not None:
        found["communication_dtype"] = facts.gradient_dtype
    accumulated = dtype_of(block_of(values, "data_types").get("grad_accum_dtype"))
    if accumulated is not None and accumulated != "int8":
        found["grad_accum_dtype"] = accumulated
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
    momentum = block_of(block, "params").get("momentum")
    is_moving = name.lower() == "sgd" and isinstance(momentum, int | float) and momentum > 0
    return {"optimizer": "sgd_momentum" if is_moving else name.lower()}


def _device(zero: Mapping[str, Any], key: str, old_key: str) -> str:
    device = block_of(zero, key).get("device", "none")
    if isinstance(device, str) and device in ("cpu", "nvme"):
        return device
    return "cpu" if zero.get(old_key) is True else "none"


def _whole(value: object) -> int | None:
    """As DeepSpeed reads it: 5e8 is a whole number too."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if value == value and abs(value) < 10**15 and value == int(value) else None
