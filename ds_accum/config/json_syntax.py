"""Whether a text is JSON and nothing more, which is what the readers other than DeepSpeed's ask for."""

from __future__ import annotations

import json

__all__ = ["is_strict_json"]


def is_strict_json(text: str) -> bool:
    """Whether Python's json reads it, as Hugging Face and Accelerate do; a byte order mark is refused."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
