"""What the text of a document does not tell: how DeepSpeed gets it, and what lies where it points."""

from __future__ import annotations

from dataclasses import dataclass

from ds_accum.config.references import Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a document comes from.

    `is_base64`: from an argument that DeepSpeed decodes, not from a file. `reference`: the config file that it names, looked
    for; None if it names none, or if there is no folder to look in, and then nothing is said about it.
    """

    is_base64: bool = False
    reference: Reference | None = None
