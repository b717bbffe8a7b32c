"""Print, as JSON, which optimizers and schedulers the DeepSpeed and torch that Python imports can build, and from what.

    DS_ACCELERATOR=cpu read_optimizer_signatures.py                  print them, on one line
    DS_ACCELERATOR=cpu read_optimizer_signatures.py --update FILE    renew ds_accum/config/versions/optimizers.json

Every class that DeepSpeed picks for a name in a config is listed with the parameters its constructor takes beside the
model's parameters (or the optimizer, for a scheduler). It runs in a process of its own because importing DeepSpeed
changes the process that does it.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

# Those that `_configure_basic_optimizer` (runtime/engine.py) builds by a name of its own. Muon is not among them: it is
# handed whole parameter groups, and a key that it does not know gets lost on the way.
DEEPSPEED_OPTIMIZERS: Mapping[str, str] = {
    "FusedAdam": "deepspeed.ops.adam",
    "DeepSpeedCPUAdam": "deepspeed.ops.adam",
    "ZenFlowCPUAdam": "deepspeed.ops.adam",
    "DeepSpeedCPUAdagrad": "deepspeed.ops.adagrad",
    "FusedLamb": "deepspeed.ops.lamb",
    "FusedLion": "deepspeed.ops.lion",
    "DeepSpeedCPULion": "deepspeed.ops.lion",
}

Signature = dict[str, list[str]]


def signature_of(constructor: type) -> Signature:
    """The names that a constructor takes by keyword, without its first parameter: those it needs, then the others."""
    found: Signature = {"required": [], "optional": []}
    for parameter in list(_parameters(constructor))[1:]:
        found["required" if parameter.default is parameter.empty else "optional"].append(parameter.name)
    return found


def _parameters(constructor: type) -> Iterator[inspect.Parameter]:
    """A constructor's named parameters; `*args, **kwargs` stand for those of its base class."""
    named = []
    passes_on = False
    for parameter in list(inspect.signature(constructor.__init__).parameters.values())[1:]:  # type: ignore[misc]
        passes_on = passes_on or parameter.kind is parameter.VAR_KEYWORD
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            named.append(parameter)
    if passes_on:
        yield from _parameters(constructor.__base__)  # type: ignore[arg-type]
    yield from named


def classes_of(module: ModuleType, base: type) -> dict[str, Signature]:
    """The module's own classes of a kind, by name."""
    found = {}
    for name, item in sorted(vars(module).items()):
        if isinstance(item, type) and issubclass(item, base) and item.__module__.startswith(module.__name__):
            found[name] = signature_of(item)
    return found


def other_names(modules: Iterable[ModuleType], known: Iterable[str]) -> dict[str, list[str]]:
    """What a config can name by mistake: all other attributes of the modules, those that can be called or not."""
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for module in modules:
        for name in {name for name in dir(module) if not name.startswith("__")}.difference(known):
            found[callable(getattr(module, name))].add(name)
    return {"callable": sorted(found[True]), "uncallable": sorted(found[False])}


def describe() -> dict[str, Any]:
    config = importlib.import_module("deepspeed.runtime.config")
    schedules = importlib.import_module("deepspeed.runtime.lr_schedules")
    optim = importlib.import_module("torch.optim")
    torch_schedules = importlib.import_module("torch.optim.lr_scheduler")
    supported = importlib.import_module("deepspeed.runtime.zero.utils").ZERO_SUPPORTED_OPTIMIZERS
    optimizers = classes_of(optim, optim.Optimizer)
    schedulers = classes_of(schedules, object)
    torch_schedulers = classes_of(torch_schedules, torch_schedules.LRScheduler)
    return {
        "read_from": {"deepspeed": version("deepspeed"), "torch": version("torch").partition("+")[0]},
        "named": sorted(config.DEEPSPEED_OPTIMIZERS),
        # Muon is put on DeepSpeed's own list only when the first optimizer is checked (`is_zero_supported_optimizer`).
        "zero_supported": sorted({item.__name__ for item in supported} | {"MuonWithAuxAdam"}),
        "optimizers": {
            name: signature_of(getattr(importlib.import_module(module), name))
            for name, module in DEEPSPEED_OPTIMIZERS.items()
        },
        "torch_optimizers": optimizers,
        "not_optimizers": other_names([optim], optimizers),
        "schedulers": schedulers,
        "torch_schedulers": torch_schedulers,
        "not_schedulers": other_names([schedules, torch_schedules], [*schedulers, *torch_schedulers]),
    }


def laid_out(description: Mapping[str, Any]) -> str:
    """The description as the data file holds it: one line a class."""
    sections = []
    for key, value in description.items():
        if isinstance(value, dict) and all(isinstance(item, dict) for item in value.values()):
            lines = [f"    {json.dumps(name)}: {json.dumps(item)}" for name, item in value.items()]
            sections.append(f"  {json.dumps(key)}: {{\n" + ",\n".join(lines) + "\n  }")
        else:
            sections.append(f"  {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(sections) + "\n}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--update", type=Path, metavar="FILE", help="write the data file instead of printing")
    arguments = parser.parse_args()
    described = describe()
    if arguments.update is None:
        print(json.dumps(described))
    else:
        arguments.update.write_text(laid_out(described), "utf-8")


if __name__ == "__main__":
    main()
