"""What the text of a document does not tell: how DeepSpeed gets it, and what lies where it points."""

from __future__ import annotations

from typing import NamedTuple

from ds_accum.config.references import Reference


class Origin(NamedTuple):
    """Where a document comes from.

    `is_base64`: from an argument that DeepSpeed decodes, not from a file. `reference`: the config file that it names,
    and whether that is there; None if it names none, or if there is no folder to look in.
    """

    is_base64: bool = False
    reference: Reference | None = None


# Nothing is known but the text.
PLAIN_TEXT = Origin()
