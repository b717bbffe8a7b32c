"""Whether what happened in a window makes a right step: every micro-batch backward, one norm at most, then one update.

A skipped step updates nothing, and may leave out the rest. The engine knows more, the order and whether a norm has to
be taken, and judges by it when the step ends; this holds for the log of any run.
"""

from __future__ import annotations

__all__ = ["what_is_wrong"]


def what_is_wrong(
    micro_batches: int, applied: bool, backwards: int, reductions: int, norms: int, updates: int, zeroings: int
) -> str | None:
    """The first count that can't be, in a few words: "2 updates, not 1"; None for a right step."""
    if backwards != micro_batches:
        return f"{_times(backwards, 'backward')} for {_times(micro_batches, 'micro-batch', 'micro-batches')}"
    # ZeRO-2 and 3 reduce in every backward, the others at the boundary; a skipped step may never get there.
    if reductions not in (1, backwards) and (applied or reductions):
        return f"{_times(reductions, 'reduction')} for {_times(backwards, 'backward')}"
    if norms > 1:
        return f"{norms} norms, not 1 at most"
    if updates != int(applied):
        return f"{_times(updates, 'update')}, not {int(applied)}"
    if applied and zeroings != 1:
        return f"{_times(zeroings, 'zeroing')} of gradients, not 1"
    return None


def _times(count: int, one: str, several: str | None = None) -> str:
    return f"{count} {one if count == 1 else several or one + 's'}"
