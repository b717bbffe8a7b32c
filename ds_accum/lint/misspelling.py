"""Which known key a misspelt one was meant to be, for keys that DeepSpeed ignores: there a wrong guess is an alarm.

closest_key("zero_optimisation", keys)        # "zero_optimization": a letter or two
closest_key("gradient_acc_steps", keys)       # "gradient_accumulation_steps": each word cut short
closest_key("lr_scheduler", keys)             # "scheduler": something put before or behind it
closest_key("model_parallel_size", keys)      # None, close as it is to "data_parallel_size"
"""

from __future__ import annotations

from collections.abc import Iterable

from ds_accum.config.spelling import LIKELY, closest_words

# Longer names are no misspelling of any key, and would take long to compare.
_LONGEST = 60


def closest_key(word: str, known: Iterable[str]) -> str | None:
    """The known key that a word stands for, None if it stands for none."""
    if len(word) > _LONGEST:
        return None
    plain = word.strip().lower().replace("-", "_")
    close = closest_words(plain, known, most=3, at_least=LIKELY)
    return next((key for key in close if _is_meant(plain, key)), None)


def _is_meant(word: str, key: str) -> bool:
    short, long = sorted((word, key), key=len)
    if len(short) >= 0.65 * len(long) and (long.startswith(short) or long.endswith(short)):
        return True
    words, parts = word.split("_"), key.split("_")
    if len(words) == len(parts) and all(map(_is_abbreviation, words, parts)):
        return True
    return _distance(word, key) <= min(3, max(1, len(short) // 6))


def _is_abbreviation(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return short == long or (len(short) >= 3 and long.startswith(short))


def _distance(one: str, other: str) -> int:
    """How many letters have to be added, dropped or exchanged."""
    row = list(range(len(other) + 1))
    for position, letter in enumerate(one, start=1):
        diagonal, row[0] = row[0], position
        for column, wanted in enumerate(other, start=1):
            cost = min(diagonal + (letter != wanted), row[column] + 1, row[column - 1] + 1)
            diagonal, row[column] = row[column], cost
    return row[-1]
