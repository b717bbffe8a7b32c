"""The largest errors of a test run, by what was run: said at its end, so that a margin that shrinks is seen."""

from __future__ import annotations

_SEEN: dict[tuple[str, str], tuple[float, str]] = {}


def note(group: str, measure: str, value: float, case: str) -> None:
    """Keeps the value if it is the largest of its group and measure so far."""
    held = _SEEN.get((group, measure))
    if held is None or not value <= held[0]:
        _SEEN[group, measure] = (value, case)


def worst() -> list[str]:
    """A line for each group: its largest errors, and the case of each."""
    groups = sorted({group for group, _ in _SEEN})
    return [
        f"{group}: "
        + ", ".join(f"{measure} {value:.1e} ({case})" for (of, measure), (value, case) in _SEEN.items() if of == group)
        for group in groups
    ]
