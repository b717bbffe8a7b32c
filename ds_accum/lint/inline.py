"""What a config says to the linter about itself, in its `ds_accum` block.

    "ds_accum": {"lint": {"ignore": {"DSA401": "the script clips by itself"}, "world_size": 64, "framework": "hf"}}

A suppression names one rule by its full code and says why; it hides that rule's findings in this file, and in no other.
Only what is right is taken from here: rule DSA251 reports whatever is wrong with the block, DSA020 and DSA021
what is without effect.

The block stands at the root of a DeepSpeed or Hugging Face config, where DeepSpeed ignores it. Accelerate and GPT-NeoX
refuse to start with a key that they do not know, so there is none in their YAML: `per-file-ignores` serves them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from ds_accum.config.document import Document, Path
from ds_accum.config.launch import FRAMEWORK_ALIASES, FRAMEWORKS, Framework, Launch
from ds_accum.config.paths import mapping_at
from ds_accum.errors import LayoutError

__all__ = ["IGNORE", "NOTHING", "Inline", "read_inline"]

IGNORE: Path = ("ds_accum", "lint", "ignore")


class Inline(NamedTuple):
    """The settings of one file. `ignore` maps the code of a rule to the reason."""

    ignore: Mapping[str, str] = MappingProxyType({})
    world_size: int | None = None
    framework: Framework | None = None

    def complete(self, launch: Launch, document: Document) -> Launch:
        """The launch with what the file says where it is open. Raises LayoutError where the degrees do not fit."""
        if launch.framework is None and self.framework is not None:
            launch = replace(launch, framework=self.framework)
        if launch.world_size is None and self.world_size is not None:
            launch = replace(launch, world_size=self.world_size)
            try:
                launch.layout()
            except LayoutError as error:
                raise LayoutError(
                    f"ds_accum.lint.world_size in {document.filename}: {error}", remedy=error.remedy
                ) from error
        return launch


NOTHING = Inline()


def read_inline(document: Document) -> Inline:
    """The settings in a document, `NOTHING` where it has none."""
    values = mapping_at(document.value, IGNORE[:-1])
    if not values or "deepspeed_config" in document.value:
        return NOTHING
    ignore = values.get("ignore")
    world_size = values.get("world_size")
    framework = values.get("framework")
    framework = FRAMEWORK_ALIASES.get(framework, framework) if isinstance(framework, str) else None
    return Inline(
        ignore={code: reason for code, reason in ignore.items() if isinstance(reason, str) and reason.strip()}
        if isinstance(ignore, dict)
        else {},
        world_size=world_size if type(world_size) is int and world_size >= 1 else None,
        framework=framework if framework in FRAMEWORKS else None,
    )
