"""Which optimizer class DeepSpeed builds for a config, and what each optimizer and scheduler takes.

    choice = resolve_optimizer(config)
    choice.name                    # "FusedAdam" for the type "Adam", "DeepSpeedCPUAdam" while its states are offloaded
    "learning_rate" in choice.parameters

DeepSpeed picks the class by the name, the offload device and two switches among the parameters, and hands it everything
else that stands in `optimizer.params`. The classes and their parameters are data (`versions/optimizers.json`, made by
`tests/tools/read_optimizer_signatures.py`); the choice is `_configure_basic_optimizer` and
`get_optimizer_configuration` (runtime/engine.py of 0.19.8), with what earlier releases did otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Any, Literal, NamedTuple

from ds_accum.config.model import DeepSpeedConfig
from ds_accum.config.schema import Version, format_version, newest_version, parse_version
from ds_accum.config.support import optimizer_device, zenflow

__all__ = [
    "MUON",
    "NOT_FROM_A_FILE",
    "OptimizerChoice",
    "Signature",
    "deepspeed_schedulers",
    "named_optimizers",
    "optimizer_removed_in",
    "other_names",
    "resolve_optimizer",
    "scheduler_signature",
    "torch_optimizers",
    "torch_schedulers",
]

_DATA = FilePath(__file__).parent / "versions"

MUON = "MuonWithAuxAdam"
"""The class behind the name Muon. It is built from whole parameter groups; a key that it does not know gets lost."""

NOT_FROM_A_FILE: Mapping[str, str] = {
    "LambdaLR": "takes a function",
    "MultiplicativeLR": "takes a function",
    "ChainedScheduler": "takes other schedulers",
    "SequentialLR": "takes other schedulers",
    "LRScheduler": "is only the base of torch's schedulers",
    "_LRScheduler": "is only the base of torch's schedulers",
}
"""torch's schedulers that no config can set up, with what stands against it."""


class Signature(NamedTuple):
    """What a constructor takes by keyword, beside the model's parameters (or the optimizer, for a scheduler)."""

    required: frozenset[str]
    optional: frozenset[str]

    @property
    def parameters(self) -> frozenset[str]:
        return self.required | self.optional


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerChoice:
    """The class that DeepSpeed builds for a config that names an optimizer.

    `name` is the class, `module` where it comes from. `parameters` are the keys that `optimizer.params` may hold, None
    where any key will do or where nothing is known about the class. `required` are those that it must hold. `kept_back`
    are keys that DeepSpeed takes out for itself, so that their values never reach the constructor.
    `is_tested_with_zero` is None where that is not known.
    """

    name: str
    module: str
    parameters: frozenset[str] | None
    required: frozenset[str] = frozenset()
    kept_back: frozenset[str] = frozenset()
    is_tested_with_zero: bool | None = None

    @property
    def full_name(self) -> str:
        """As messages name it: torch's classes share their names with DeepSpeed's words for an optimizer."""
        return f"torch.optim.{self.name}" if self.module == "torch.optim" else self.name


# --- the names --------------------------------------------------------------------------------------------------------


def named_optimizers(version: Version) -> frozenset[str]:
    """The names, in lower case, that a release knows by themselves; it looks up all others in `torch.optim`."""
    names = frozenset(_data()["named"])
    if version < newest_version():
        for change in reversed(_name_changes()):
            if parse_version(change["version"]) > version:
                names = names - set(change.get("added", ())) | set(change.get("removed", ()))
    return names


def optimizer_removed_in(name: str, version: Version) -> str | None:
    """The release that dropped a name which `version` does not know any more: "0.19.7"; None if none did."""
    for change in _name_changes():
        removed_in = parse_version(change["version"])
        if name.lower() in change.get("removed", ()) and removed_in <= version:
            return format_version(removed_in)
    return None


def torch_optimizers() -> Collection[str]:
    """The optimizers of `torch.optim`, in torch's own spelling."""
    names: Collection[str] = _data()["torch_optimizers"].keys()
    return names


def other_names(things: Literal["optimizers", "schedulers"]) -> Mapping[str, Literal["callable", "uncallable"]]:
    """What else stands where DeepSpeed looks for them, and passes its check of the name: modules, functions, constants.

    What can't be called, `lr_scheduler` or `math`, fails with certainty; what comes of the rest depends on its
    parameters.
    """
    found: dict[str, Literal["callable", "uncallable"]] = dict.fromkeys(
        _data()[f"not_{things}"]["callable"], "callable"
    )
    return found | dict.fromkeys(_data()[f"not_{things}"]["uncallable"], "uncallable")


def deepspeed_schedulers() -> Collection[str]:
    """The schedulers of `deepspeed.runtime.lr_schedules`, where DeepSpeed looks first."""
    names: Collection[str] = _data()["schedulers"].keys()
    return names


def torch_schedulers() -> Collection[str]:
    """The schedulers of `torch.optim.lr_scheduler`, where DeepSpeed looks next."""
    names: Collection[str] = _data()["torch_schedulers"].keys()
    return names


def scheduler_signature(name: str) -> Signature | None:
    """What a scheduler takes, None if neither DeepSpeed nor torch has it."""
    spec = _data()["schedulers"].get(name) or _data()["torch_schedulers"].get(name)
    return None if spec is None else _signature(spec)


# --- the choice -------------------------------------------------------------------------------------------------------


def resolve_optimizer(config: DeepSpeedConfig) -> OptimizerChoice | None:
    """The class that DeepSpeed builds if the script passes no optimizer of its own.

    None where the config names no optimizer, one that there is not, or one whose class a refused value decides.
    """
    name = config.block("optimizer").get("type")
    device = optimizer_device(config)
    if not isinstance(name, str) or device is None:
        return None
    word, version = name.lower(), config.schema.version
    if word not in named_optimizers(version):
        return _torch_choice(name) if name in torch_optimizers() else None
    offloaded = device in ("cpu", "nvme")
    if word in ("adam", "adamw"):
        return _adam(config, word, offloaded)
    if word == "adagrad":
        return _choice("DeepSpeedCPUAdagrad") if offloaded else _torch_choice("Adagrad")
    if word == "lion":
        return _choice("DeepSpeedCPULion" if offloaded else "FusedLion")
    if word == "lamb":
        return _choice("FusedLamb")
    if word == "muon":
        return OptimizerChoice(name=MUON, module="deepspeed", parameters=None, is_tested_with_zero=True)
    # The optimizers of mup, a package of its own, and the 1-bit ones that 0.19.7 dropped.
    return OptimizerChoice(name=name, module="", parameters=None)


def _adam(config: DeepSpeedConfig, word: str, offloaded: bool) -> OptimizerChoice:
    """Adam and AdamW are one: `adam_w_mode` is on by default, and forced by the name AdamW."""
    params = config.block("optimizer").get("params")
    params = params if isinstance(params, Mapping) else {}
    kept_back = {"torch_adam", "adam_w_mode"}
    if config.schema.version >= (0, 19, 6):
        # Earlier releases took it out for DeepSpeedCPUAdam alone.
        kept_back.add("fp32_optimizer_states")
    if params.get("torch_adam"):
        decoupled = word == "adamw" or params.get("adam_w_mode", True)
        return _torch_choice("AdamW" if decoupled else "Adam", kept_back=kept_back)
    if not offloaded:
        return _choice("FusedAdam", kept_back=kept_back)
    if word == "adam":
        # It reaches the constructor under another name, `adamw_mode`; the name AdamW overrides it.
        kept_back.discard("adam_w_mode")
    # DeepSpeed passes these two itself: a second value is "multiple values for keyword argument".
    taken = {"adamw_mode", "overlap_step"}
    also = {"adam_w_mode", "fp32_optimizer_states"}
    if zenflow(config) is None:
        return _choice("DeepSpeedCPUAdam", kept_back=kept_back, taken=taken, also=also)
    choice = _choice("ZenFlowCPUAdam", kept_back=kept_back, taken=taken, also=also)
    # The list of ZeRO's own optimizers lacked it at first.
    return replace(choice, is_tested_with_zero=config.schema.version >= (0, 19, 3))


def _choice(
    name: str,
    *,
    kept_back: Collection[str] = (),
    taken: Collection[str] = (),
    also: Collection[str] = (),
) -> OptimizerChoice:
    signature = _signature(_data()["optimizers"][name])
    return OptimizerChoice(
        name=name,
        module="deepspeed",
        parameters=frozenset((signature.parameters - set(taken)) | set(kept_back) | set(also)),
        required=signature.required,
        kept_back=frozenset(kept_back),
        is_tested_with_zero=name in _data()["zero_supported"],
    )


def _torch_choice(name: str, *, kept_back: Collection[str] = ()) -> OptimizerChoice:
    signature = _signature(_data()["torch_optimizers"][name])
    return OptimizerChoice(
        name=name,
        module="torch.optim",
        parameters=signature.parameters | frozenset(kept_back),
        required=signature.required,
        kept_back=frozenset(kept_back),
        is_tested_with_zero=name in _data()["zero_supported"],
    )


# --- the data ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    data: dict[str, Any] = json.loads((_DATA / "optimizers.json").read_text("utf-8"))
    return data


@lru_cache(maxsize=1)
def _name_changes() -> tuple[dict[str, Any], ...]:
    """What releases did to the names, oldest first: needed only for an older release, or a name that is gone."""
    return tuple(json.loads((_DATA / "history.json").read_text("utf-8"))["optimizers"]["changes"])


def _signature(spec: Mapping[str, Any]) -> Signature:
    return Signature(required=frozenset(spec["required"]), optional=frozenset(spec["optional"]))
