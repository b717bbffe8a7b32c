"""Where in a document the DeepSpeed config is: it may be the whole of it, or stand inside another tool's file.

    DeepSpeed JSON (or YAML)    the root
    Hugging Face JSON           the root, with "auto" where Trainer or Accelerate fills in a value before DeepSpeed
                                sees it
    Accelerate YAML             the `deepspeed_config` block, in Accelerate's own names, or a file that it names
    GPT-NeoX YAML               the root's DeepSpeed keys, with hyphens or underscores

Each becomes an `EmbeddedConfig`: the values under DeepSpeed's names, and for each of them the place in the document.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ds_accum.config.document import Document, Path, Syntax
from ds_accum.config.huggingface import FILLED_IN, fill_in
from ds_accum.config.launch import Framework, Launch
from ds_accum.config.paths import value_at
from ds_accum.config.schema import newest_version, schema_for

# Accelerate's names for DeepSpeed's settings (accelerate/commands/launch.py and utils/dataclasses.py, DeepSpeedPlugin).
_ACCELERATE_KEYS: Mapping[str, Path] = {
    "zero_stage": ("zero_optimization", "stage"),
    "gradient_accumulation_steps": ("gradient_accumulation_steps",),
    "gradient_clipping": ("gradient_clipping",),
    "offload_optimizer_device": ("zero_optimization", "offload_optimizer", "device"),
    "offload_optimizer_nvme_path": ("zero_optimization", "offload_optimizer", "nvme_path"),
    "offload_param_device": ("zero_optimization", "offload_param", "device"),
    "offload_param_nvme_path": ("zero_optimization", "offload_param", "nvme_path"),
    "zero3_save_16bit_model": ("zero_optimization", "stage3_gather_16bit_weights_on_model_save"),
}


_SET_BY_LIGHTNING = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")

# What else `accelerate launch` reads there (accelerate/commands/launch.py of 1.15).
_OTHER_ACCELERATE_KEYS = frozenset(
    {
        "deepspeed_config_file",
        "deepspeed_exclusion_filter",
        "deepspeed_hostfile",
        "deepspeed_inclusion_filter",
        "deepspeed_moe_layer_cls_names",
        "deepspeed_multinode_launcher",
        "zero3_init_flag",
    }
)
ACCELERATE_KEYS = frozenset(_ACCELERATE_KEYS) | _OTHER_ACCELERATE_KEYS
"""The keys under `deepspeed_config` of an Accelerate YAML."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedConfig:
    """A DeepSpeed config found in a document.

    `values` are its root keys, `filled_in` the paths that the framework fills in later and that are left out of them.
    With the framework's arguments at hand these are filled in already: `sources` says where each such value comes from,
    and `written` holds what the file itself says. `places` maps a path of the config to its path in the document, where
    the two differ.
    """

    values: Mapping[str, Any]
    framework: Framework | None = None
    filled_in: frozenset[Path] = frozenset()
    written: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[Path, str] = field(default_factory=dict)
    places: Mapping[Path, Path] = field(default_factory=dict)
    base: Path = ()
    world_size: int | None = None

    def locate(self, path: Path) -> Path:
        """The document's path of a path of the config, or of its nearest parent that has one."""
        for length in range(len(path), 0, -1):
            place = self.places.get(path[:length])
            if place is not None:
                return (*place, *path[length:])
        return (*self.base, *path)


def find_configs(document: Document, launch: Launch) -> Iterator[EmbeddedConfig]:
    """The DeepSpeed configs in a document; none if it holds something else than a mapping."""
    values = document.value
    if not isinstance(values, dict):
        return
    if _is_accelerate(values):
        if (
            isinstance(values.get("deepspeed_config"), dict)
            and "deepspeed_config_file" not in values["deepspeed_config"]
        ):
            yield _from_accelerate(values, launch)
    elif document.syntax is Syntax.YAML and launch.framework in (None, "raw", "gpt-neox") and _is_gpt_neox(values):
        yield _from_gpt_neox(values)
    else:
        framework = launch.framework or ("huggingface" if launch.hf_arguments else detect_framework(values))
        if framework in ("huggingface", "accelerate"):
            yield _filled_in_by_huggingface(values, launch, framework)
        elif framework == "lightning":
            # What it does not find it sets itself (`_format_batch_size_and_grad_accum_config`).
            absent = frozenset((key,) for key in _SET_BY_LIGHTNING if key not in values)
            yield EmbeddedConfig(values=values, framework=framework, filled_in=absent)
        else:
            yield EmbeddedConfig(values=values, framework=framework)


def referenced_file(document: Document) -> str | None:
    """The DeepSpeed config file that an Accelerate YAML names, as it stands there."""
    values = document.value
    if not isinstance(values, dict) or not _is_accelerate(values) or not isinstance(values["deepspeed_config"], dict):
        return None
    name = values["deepspeed_config"].get("deepspeed_config_file")
    return name if isinstance(name, str) and name.strip() else None


def accelerate_settings(document: Document) -> Mapping[str, Any] | None:
    """What an Accelerate YAML says of DeepSpeed, None for any other document."""
    values = document.value
    if not isinstance(values, dict) or not _is_accelerate(values):
        return None
    settings = values["deepspeed_config"]
    return settings if isinstance(settings, dict) else None


def number_of_processes(document: Document) -> int | None:
    """The world size that an Accelerate YAML launches, None if it does not say."""
    values = document.value
    if isinstance(values, dict) and _is_accelerate(values) and type(values.get("num_processes")) is int:
        count: int = values["num_processes"]
        return count if count >= 1 else None
    return None


def looks_like_deepspeed(document: Document) -> bool:
    """Whether a document holds a DeepSpeed config: what a folder's files are picked by."""
    values = document.value
    if not isinstance(values, dict):
        return False
    if _is_accelerate(values) or _TELLING_KEYS & values.keys():
        return True
    return _is_gpt_neox(values) and bool(_TELLING_KEYS & {str(key).replace("-", "_") for key in values})


def may_hold_deepspeed(data: bytes) -> bool:
    """False for bytes that `looks_like_deepspeed` would refuse once they are read: a cheap look first."""
    return any(key in data for key in _TELLING_BYTES)


def detect_framework(values: Mapping[str, Any]) -> Framework | None:
    """Hugging Face, if "auto" stands where only its integration gives it a meaning; None if nothing tells."""
    return "huggingface" if next(_filled_in(values), None) is not None else None


# Keys that no other tool's JSON file has at its root.
_TELLING_KEYS = frozenset(
    {
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "zero_optimization",
        "gradient_accumulation_steps",
        "zero_allow_untested_optimizer",
        "zero_force_ds_cpu_optimizer",
        "wall_clock_breakdown",
        "steps_per_print",
    }
)
_TELLING_BYTES = tuple(
    word.encode() for key in sorted({*_TELLING_KEYS, "deepspeed_config"}) for word in {key, key.replace("_", "-")}
)


def _filled_in(values: Mapping[str, Any]) -> Iterator[Path]:
    for path in FILLED_IN:
        held = value_at(values, path)
        if isinstance(held, str) and held == "auto":
            yield path


def _filled_in_by_huggingface(
    values: Mapping[str, Any],
    launch: Launch,
    framework: Framework,
    *,
    places: Mapping[Path, Path] | None = None,
    base: Path = (),
) -> EmbeddedConfig:
    """The config that DeepSpeed gets from Trainer, as far as the launch tells with what it is filled in."""
    filled = fill_in(values, launch.hf_arguments, launch.world_size)
    return EmbeddedConfig(
        values=filled.values,
        framework=framework,
        filled_in=filled.open,
        written=values,
        sources=filled.sources,
        places={} if places is None else places,
        base=base,
    )


def _is_accelerate(values: Mapping[str, Any]) -> bool:
    return "deepspeed_config" in values and ("distributed_type" in values or "compute_environment" in values)


def _from_accelerate(values: Mapping[str, Any], launch: Launch) -> EmbeddedConfig:
    """What Accelerate's plugin builds: its own keys under DeepSpeed's names, the rest left to the script."""
    config: dict[str, Any] = {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
    }
    places: dict[Path, Path] = {}
    for key, value in values["deepspeed_config"].items():
        path = _ACCELERATE_KEYS.get(key)
        if path is None or value in ("none", "auto", None):
            continue
        holder = config
        for part in path[:-1]:
            holder = holder.setdefault(str(part), {})
        holder[str(path[-1])] = value
        places[path] = ("deepspeed_config", key)
    precision = values.get("mixed_precision")
    if precision in ("fp16", "bf16"):
        config[precision] = {"enabled": True, "auto_cast": True} if precision == "fp16" else {"enabled": True}
        places[(precision,)] = ("mixed_precision",)
    if type(config["gradient_clipping"]) in (int, float) and not config["gradient_clipping"]:
        # The plugin takes a 0 for nothing said, and DeepSpeed takes its own default.
        del config["gradient_clipping"]
    return _filled_in_by_huggingface(config, launch, "accelerate", places=places, base=("deepspeed_config",))


_GPT_NEOX_KEYS = frozenset(
    {"pipe_parallel_size", "model_parallel_size", "num_layers", "num_attention_heads", "vocab_file"}
)


def _is_gpt_neox(values: Mapping[str, Any]) -> bool:
    return bool(_GPT_NEOX_KEYS & {str(key).replace("-", "_") for key in values})


def _from_gpt_neox(values: Mapping[str, Any]) -> EmbeddedConfig:
    """GPT-NeoX hands every DeepSpeed key of its file on to DeepSpeed, whichever way it is spelt."""
    known = schema_for(newest_version()).block("").keys.keys() | _REMOVED_KEYS_OF_GPT_NEOX
    config: dict[str, Any] = {}
    places: dict[Path, Path] = {}
    for key, value in values.items():
        name = str(key).replace("-", "_")
        if name in known:
            config[name] = value
            places[(name,)] = (key,)
    return EmbeddedConfig(values=config, framework="gpt-neox", places=places)


# Keys of neox_arguments/deepspeed_args.py that DeepSpeed has dropped since.
_REMOVED_KEYS_OF_GPT_NEOX = frozenset(
    {
        "amp",
        "sparse_gradients",
        "sparse_attention",
        "curriculum_learning",
        "elasticity",
        "compression_training",
        "fp32_allreduce",
    }
)
