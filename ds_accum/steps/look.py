"""What may be printed where a report is read: so many columns, colour or not, more than ASCII or not."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Look"]

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """The terminal, pipe or file that a report goes to."""

    width: int = 80
    color: bool = False
    unicode: bool = True

    def paint(self, text: str, style: str) -> str:
        """The text in a style such as "bold" or "red"; unchanged without colour."""
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self.color and text else text
