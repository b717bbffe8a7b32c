"""The known word that a misspelt one was meant to be: one way to compare, whatever is misspelt.

closest_word("overlap-Com", keys)             # "overlap_comm"
closest_words("zero4.json", files, most=3)    # ["zero3.json", "zero3_cpu.json"]
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["LIKELY", "POSSIBLE", "closest_word", "closest_words"]

LIKELY = 0.75
"""How alike two words are, from 0 to 1, where a wrong guess misleads: the key of a config, the name of an optimizer."""

POSSIBLE = 0.6
"""The same where the user sees at once whether the guess is right: what was typed on the command line."""


def closest_word(word: str, known: Iterable[str], *, at_least: float = LIKELY) -> str | None:
    """The known word that a misspelt one comes closest to, None if nothing is close."""
    return next(iter(closest_words(word, known, most=1, at_least=at_least)), None)


def closest_words(word: str, known: Iterable[str], *, most: int, at_least: float = POSSIBLE) -> list[str]:
    """The known words that a misspelt one may have been meant to be, `most` at the most, the closest first.

    Neither case counts nor whether - or _ joins the parts of a word. `at_least` is how alike they must be, from 0 to 1.
    """
    from difflib import get_close_matches  # a slow import, needed only where something is misspelt

    by_folded: dict[str, list[str]] = {}
    for name in known:
        by_folded.setdefault(_folded(name), []).append(name)
    close = get_close_matches(_folded(word), by_folded, n=most, cutoff=at_least)
    return [name for folded in close for name in by_folded[folded]][:most]


def _folded(word: str) -> str:
    return word.strip().lower().replace("-", "_")
