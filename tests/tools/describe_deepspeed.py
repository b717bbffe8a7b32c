"""Print, as JSON, what the DeepSpeed that Python imports really does with a config: its models, and its defaults.

    DS_ACCELERATOR=cpu describe_deepspeed.py

The counterpart of `read_deepspeed_schema.py`, which only reads the source: here pydantic itself names the fields, and
`DeepSpeedConfig` itself fills in the defaults of the plain dictionaries. It runs in a process of its own because
importing DeepSpeed changes the process that does it.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any

# Block -> where its model stands. A release that lacks one lacks the block.
MODELS: Mapping[str, str] = {
    "zero_optimization": "runtime.zero.config.DeepSpeedZeroConfig",
    "fp16": "runtime.precision_config.DeepSpeedFP16Config",
    "bf16": "runtime.precision_config.DeepSpeedBF16Config",
    "comms_logger": "comm.config.CommsLoggerConfig",
    "tensorboard": "monitor.config.TensorBoardConfig",
    "wandb": "monitor.config.WandbConfig",
    "csv_monitor": "monitor.config.CSVConfig",
    "comet": "monitor.config.CometConfig",
    "hybrid_engine": "runtime.config.HybridEngineConfig",
    "compile": "compile.config.CompileConfig",
    "tensor_parallel": "runtime.tensor_parallel.config.TPTrainingConfig",
    "weight_quantization": "inference.config.WeightQuantConfig",
    "timers.throughput": "utils.config.DeepSpeedThroughputTimerConfig",
}

# Each block is present and empty, so that the defaults are those of a key that its block leaves out.
MINIMAL: Mapping[str, Any] = {
    "train_batch_size": 1,
    "activation_checkpointing": {},
    "aio": {},
    "autotuning": {},
    "checkpoint": {"writer": {}, "parallel_write": {}},
    "data_efficiency": {
        "data_sampling": {"curriculum_learning": {}, "dynamic_batching": {}},
        "data_routing": {"random_ltd": {}},
    },
    "data_types": {},
    "expert_parallel": {"enabled": False},
    "flops_profiler": {},
    "optimizer": {},
    "pipeline": {},
    "scheduler": {},
    "torch_autocast": {},
}

_TOP_ATTRIBUTES: Mapping[str, str] = {"use_data_before_expert_parallelism": "use_data_before_expert_parallel_"}
_TOP_KEYS = (
    "managed_gradient_accumulation",
    "gradient_clipping",
    "prescale_gradients",
    "gradient_predivide_factor",
    "gradient_allreduce_op",
    "communication_data_type",
    "seq_parallel_communication_data_type",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
    "steps_per_print",
    "wall_clock_breakdown",
    "memory_breakdown",
    "dump_state",
    "disable_allgather",
    "disable_python_gc",
    "dataloader_drop_last",
    "log_level",
    "use_data_before_expert_parallelism",
)

# What DeepSpeedConfig makes of "fp16", "bf16" and "fp32".
_SPELLING: Mapping[str, str] = {"torch.float16": "fp16", "torch.bfloat16": "bf16", "torch.float32": "fp32"}


def _top(config: Any) -> Mapping[str, Any]:
    values = {key: getattr(config, _TOP_ATTRIBUTES.get(key, key), None) for key in _TOP_KEYS}
    return {key: _SPELLING.get(str(value), value) for key, value in values.items()}


# Block -> the dictionary in which a DeepSpeedConfig holds what it made of it, by the config's own key names.
RESOLVED: Mapping[str, Callable[[Any], Mapping[str, Any]]] = {
    "": _top,
    "activation_checkpointing": lambda config: vars(config.activation_checkpointing_config),
    "aio": lambda config: config.aio_config,
    "autotuning": lambda config: vars(config.autotuning_config),
    "checkpoint": lambda config: {
        **config.checkpoint_config,
        "load_universal": config.load_universal_checkpoint,
        "use_node_local_storage": config.use_node_local_storage,
    },
    "checkpoint.writer": lambda config: config.checkpoint_config["writer"],
    "checkpoint.parallel_write": lambda config: {"pipeline_stage": config.checkpoint_parallel_write_pipeline},
    "data_efficiency": lambda config: config.data_efficiency_config,
    "data_efficiency.data_sampling": lambda config: config.data_efficiency_config["data_sampling"],
    "data_efficiency.data_sampling.curriculum_learning": lambda config: config.data_efficiency_config["data_sampling"][
        "curriculum_learning"
    ],
    "data_efficiency.data_sampling.dynamic_batching": lambda config: config.data_efficiency_config["data_sampling"][
        "dynamic_batching"
    ],
    "data_efficiency.data_routing": lambda config: config.data_efficiency_config["data_routing"],
    "data_efficiency.data_routing.random_ltd": lambda config: config.data_efficiency_config["data_routing"][
        "random_ltd"
    ],
    "data_types": lambda config: {
        key: getattr(config, key)
        for key in ("grad_accum_dtype", "param_dtype", "buffer_dtype", "keep_in_fp32_modules")
        if hasattr(config, key)
    },
    "expert_parallel": lambda config: dataclasses.asdict(config.expert_parallel_config),
    "flops_profiler": lambda config: vars(config.flops_profiler_config),
    "optimizer": lambda config: {
        "type": config.optimizer_name,
        "params": config.optimizer_params,
        "legacy_fusion": config.optimizer_legacy_fusion,
    },
    "pipeline": lambda config: config.pipeline,
    "scheduler": lambda config: {"type": config.scheduler_name, "params": config.scheduler_params},
    "torch_autocast": lambda config: {
        "enabled": config.torch_autocast_enabled,
        "dtype": config.torch_autocast_dtype,
        "lower_precision_safe_modules": config.torch_autocast_lower_precision_safe_modules,
    },
}


def describe_models() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every block that is a pydantic model, with its keys as keys.json writes them."""
    for block, place in MODELS.items():
        module, name = f"deepspeed.{place}".rsplit(".", 1)
        try:
            model = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
        yield from describe_model(block, model)


def describe_model(block: str, model: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The keys of one pydantic model, and then those of the models that it holds."""
    keys: dict[str, Any] = {}
    for attribute, field in model.model_fields.items():
        key = field.alias or attribute
        spec, inner = _describe_type(field.annotation, f"{block}.{key}")
        for constraint in field.metadata:
            bounds = {name: getattr(constraint, name, None) for name in ("ge", "gt", "le", "lt")}
            spec.update({name: bound for name, bound in bounds.items() if bound is not None})
        if field.alias:
            spec["name_in_model"] = attribute
        extra = field.json_schema_extra or {}
        if extra.get("deprecated"):
            spec["replaced_by"] = extra.get("new_param")
        spec["default"] = plain(field.get_default(call_default_factory=True))
        keys[key] = spec
        if inner is not None:
            yield from describe_model(f"{block}.{key}", inner)
    yield block, keys


_TYPE_NAMES: Mapping[Any, str] = {object: "any", Any: "any"}


def _describe_type(annotation: Any, path: str) -> tuple[dict[str, Any], Any]:
    """An annotation as keys.json writes it, and the pydantic model that it names, if it names one."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        members = [_describe_type(member, path) for member in arguments if member is not types.NoneType]
        kinds = "|".join(spec["type"] for spec, _ in members)
        null = {"null": True} if types.NoneType in arguments else {}
        return {**members[0][0], "type": kinds, **null}, members[0][1]
    if origin is typing.Literal:
        return {"type": "literal", "choices": list(arguments)}, None
    if origin is list:
        inner = _describe_type(arguments[0], path)[0]
        return {**inner, "type": f"list[{inner['type']}]"}, None
    if origin is dict:
        return {"type": "dict[str]" if arguments[:1] == (str,) else "dict"}, None
    if annotation in _TYPE_NAMES:
        return {"type": _TYPE_NAMES[annotation]}, None
    if hasattr(annotation, "model_fields"):
        return {"type": f"block:{path}"}, annotation
    if issubclass(annotation, Enum):
        kind = "int_enum" if issubclass(annotation, int) else "str_enum"
        return {"type": kind, "choices": [member.value for member in annotation]}, None
    # Path, dtype, int, float, str, bool, list and tuple go by their own names.
    return {"type": annotation.__name__.lower()}, None


def plain(value: Any) -> Any:
    """A default as JSON can write it: models as {}, torch's and DeepSpeed's own types by their usual spelling."""
    if hasattr(value, "model_fields_set"):
        return {}
    if isinstance(value, Enum):
        return value.value
    if type(value).__module__ == "torch" and type(value).__name__ == "dtype":
        return str(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return value


def describe_defaults() -> dict[str, dict[str, Any]]:
    """What DeepSpeedConfig makes of the keys that the plain dictionaries leave out."""
    from deepspeed.runtime.config import DeepSpeedConfig

    config = DeepSpeedConfig(json.loads(json.dumps(MINIMAL)))
    resolved: dict[str, dict[str, Any]] = {}
    for block, read in RESOLVED.items():
        try:
            resolved[block] = {key: plain(value) for key, value in read(config).items()}
        except (AttributeError, KeyError):
            # An older release that does not know the block.
            continue
    return resolved


def main() -> int:
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed
    from deepspeed.runtime.config import DEEPSPEED_OPTIMIZERS

    description = {
        "version": deepspeed.__version__,
        "optimizers": sorted(DEEPSPEED_OPTIMIZERS),
        "models": dict(describe_models()),
        "defaults": describe_defaults(),
    }
    # DeepSpeed logs to standard output, so the answer is its last line. A value that JSON can't write is one that no
    # config could hold either: a marker for "not given".
    print(json.dumps(description, default=lambda value: None))
    return 0


if __name__ == "__main__":
    sys.exit(main())
