"""What a config and its launch hold, in words: the cheap question that decides which rules are asked at all.

zero_optimization, stage, 64      keys, at any depth            --pp        a degree above 1
--hf-arg                          Trainer's arguments are known --resume    a checkpoint is resumed from
--framework=lightning             who reads the config first    --accelerator   another one than CUDA
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ds_accum.config.document import Document
    from ds_accum.config.embedded import EmbeddedConfig
    from ds_accum.config.launch import Launch

__all__ = ["words_of"]

_DEGREES = {
    "--tp": "tensor_parallel_size",
    "--pp": "pipeline_parallel_size",
    "--cp": "context_parallel_size",
    "--sp": "sequence_parallel_size",
    "--ep": "expert_parallel_size",
}


def words_of(document: Document, configs: Iterable[EmbeddedConfig], launch: Launch) -> frozenset[str]:
    """The words of a document, of the configs found in it, and of the launch that these are judged for."""
    words = {option for option, field in _DEGREES.items() if getattr(launch, field) > 1}
    if launch.hf_arguments is not None:
        words.add("--hf-arg")
    if launch.checkpoint is not None:
        words.add("--resume")
    if launch.accelerator != "cuda":
        words.add("--accelerator")
    # Under another tool's names a config has keys that the document has not.
    holders: list[Any] = [document.value]
    frameworks = {launch.framework}
    for config in configs:
        holders.append(config.values)
        frameworks.add(config.framework)
        words.update(str(part) for path in config.filled_in for part in path)
    words.update(f"--framework={framework}" for framework in frameworks if framework is not None)
    # YAML's aliases may lead to the same value again and again.
    seen: set[int] = set()
    while holders:
        held = holders.pop()
        if id(held) in seen:
            continue
        seen.add(id(held))
        if isinstance(held, Mapping):
            words.update(map(str, held))
            holders.extend(held.values())
        elif isinstance(held, list):
            holders.extend(held)
    return frozenset(words)
