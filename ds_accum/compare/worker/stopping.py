"""Why a launch can't go on, and how an error is told to people."""

from __future__ import annotations

from ds_accum.errors import DSAccumError

__all__ = ["OutOfStepError", "one_sentence"]


class OutOfStepError(DSAccumError):
    """Some ranks failed where others went on: no collective would match any more, so the launch has to end."""


def one_sentence(error: BaseException) -> str:
    """An error as it is shown to people: its kind, unless it is ours, and the first line of what it says."""
    lines = str(error).strip().splitlines()
    said = lines[0] if lines else "it says nothing"
    return said if isinstance(error, DSAccumError) else f"{type(error).__name__}: {said}"
