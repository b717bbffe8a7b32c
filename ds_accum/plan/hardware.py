"""The GPUs of a cluster: memory, peak arithmetic by dtype, and the speed of the links inside and between nodes.

    hardware = read_hardware("H100-80GB")          # one of configs/hardware, or a file of the same form
    hardware.peak_flops_per_second["bf16"]         # dense
    hardware.override(memory_bytes=64 * 10**9)     # the same GPU where less of it is free

All speeds are a GPU's own share and one way: a collective sends and receives at that rate at once. `sources` names the
datasheet of every number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ds_accum.batch.wording import require_integer, show, show_list
from ds_accum.errors import ConfigError, UsageError
from ds_accum.plan.shipped import shipped_folder

__all__ = ["Hardware", "hardware_names", "read_hardware"]

_DTYPES = ("fp32", "bf16", "fp16")
_SPEEDS = (
    "memory_bytes_per_second",
    "intra_node_bytes_per_second",
    "inter_node_bytes_per_second",
    "host_bytes_per_second",
    "intra_node_latency_seconds",
    "inter_node_latency_seconds",
)
# No hardware comes near it; what is past it is a slip of the hand.
_LARGEST = 10**24


@dataclass(frozen=True, kw_only=True, slots=True)
class Hardware:
    """One kind of GPU in one kind of node. Raises ConfigError if a number is no positive finite one.

    `memory_bytes` is what the driver leaves to a process, which is not the vendor's figure. `peak_flops_per_second`
    maps "fp32", "bf16" and "fp16" to dense floating-point operations; a dtype that the GPU lacks is absent.
    `host_bytes_per_second` is the way to the memory of the host, for offload.
    """

    name: str
    memory_bytes: int
    gpus_per_node: int
    peak_flops_per_second: Mapping[str, float]
    memory_bytes_per_second: float
    intra_node_bytes_per_second: float
    inter_node_bytes_per_second: float
    host_bytes_per_second: float
    intra_node_latency_seconds: float
    inter_node_latency_seconds: float
    sources: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("memory_bytes", "gpus_per_node"):
            require_integer(getattr(self, name), name=f"{name} of {self.name}", error=ConfigError)
        for name in _SPEEDS:
            _require_positive(getattr(self, name), name=f"{name} of {self.name}")
        if not self.peak_flops_per_second:
            raise ConfigError(
                f"peak_flops_per_second of {self.name} is empty", remedy=f"give at least one of {show_list(_DTYPES)}"
            )
        for dtype, flops in self.peak_flops_per_second.items():
            if dtype not in _DTYPES:
                raise ConfigError(
                    f"peak_flops_per_second of {self.name} has the dtype {dtype!r}",
                    remedy=f"name the dtypes {show_list(_DTYPES)}",
                )
            _require_positive(flops, name=f"peak_flops_per_second of {self.name} in {dtype}")

    def override(self, *, memory_bytes: int | None = None, gpus_per_node: int | None = None) -> Hardware:
        """The same GPU with less, or more, memory, or in smaller or larger nodes."""
        changed = {"memory_bytes": memory_bytes, "gpus_per_node": gpus_per_node}
        return replace(self, **{name: value for name, value in changed.items() if value is not None})  # type: ignore[arg-type]

    def peak_in(self, dtype: str) -> float:
        """Peak operations a second in a dtype. Raises UsageError where the GPU does not compute in it."""
        if dtype not in self.peak_flops_per_second:
            raise UsageError(
                f"{self.name} does not compute in {dtype}",
                remedy=f"use {show_list(sorted(self.peak_flops_per_second))}, or another GPU",
            )
        return self.peak_flops_per_second[dtype]


def read_hardware(name_or_path: str) -> Hardware:
    """One of `configs/hardware` by its name or an alias, in any case, or a JSON file of the same form.

    Raises UsageError where there is no such name or file, ConfigError where the file does not describe a GPU.
    """
    known = _known()
    wanted = _folded(name_or_path)
    if wanted in known:
        return _read_file(known[wanted])
    path = Path(name_or_path)
    if path.suffix == ".json" or "/" in name_or_path or "\\" in name_or_path:
        return _read_file(path)
    raise _unknown(name_or_path, known)


def hardware_names() -> tuple[str, ...]:
    """The kinds that `configs/hardware` describes, sorted."""
    return tuple(sorted(path.stem for path in shipped_folder("hardware").glob("*.json")))


def _known() -> dict[str, Path]:
    found = {}
    for path in sorted(shipped_folder("hardware").glob("*.json")):
        for name in (path.stem, *_load(path).get("aliases", ())):
            found[_folded(name)] = path
    return found


def _folded(name: str) -> str:
    return name.strip().lower().replace("_", "-").replace(" ", "-")


def _unknown(name: str, known: Mapping[str, Path]) -> UsageError:
    from difflib import get_close_matches  # a slow import, needed only here

    close = get_close_matches(_folded(name), known, n=1)
    names = show_list(hardware_names(), last=" and ")
    remedy = f"did you mean {known[close[0]].stem}? " if close else ""
    remedy += f"there are {names}; or give a JSON file like those in configs/hardware"
    return UsageError(f"there is no hardware {name[:80]!r}", remedy=remedy)


def _load(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise UsageError.because(f"can't read {path}", error) from error
    try:
        loaded = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}", remedy="see the files in configs/hardware") from error
    if not isinstance(loaded, dict):
        raise ConfigError(f"{path} holds no JSON object", remedy="see the files in configs/hardware")
    return loaded


def _read_file(path: Path) -> Hardware:
    loaded = _load(path)
    known = {field.name for field in fields(Hardware)}
    required = known - {"sources", "aliases"}
    missing, surplus = sorted(required - loaded.keys()), sorted(loaded.keys() - known)
    if missing or surplus:
        said = "lacks " + show_list(missing, last=" and ") if missing else "has the unknown " + surplus[0]
        raise ConfigError(f"{path} {said}", remedy=f"its keys are {show_list(sorted(known), last=' and ')}")
    if not isinstance(loaded["name"], str) or not isinstance(loaded["peak_flops_per_second"], dict):
        raise ConfigError(
            f"{path} needs a text for name and an object for peak_flops_per_second",
            remedy="see the files in configs/hardware",
        )
    for name in ("sources", "aliases"):
        texts = loaded.get(name, [])
        if not (isinstance(texts, list) and all(isinstance(text, str) for text in texts)):
            raise ConfigError(f"{name} in {path} is no list of texts", remedy="see the files in configs/hardware")
        loaded[name] = tuple(texts)
    return Hardware(**loaded)


def _require_positive(value: object, *, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _LARGEST:
        raise ConfigError(
            f"{name} must be a positive number, not {_said(value)}", remedy="give it in bytes, operations and seconds"
        )


def _said(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return show(value)
    return repr(value) if isinstance(value, float | bool) or value is None else f"a {type(value).__name__}"
