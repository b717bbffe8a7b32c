"""Which rules are asked: chosen by their codes, by the first characters of them, or ALL.

    select ALL, ignore DSA4               everything but accumulation and clipping
    select DSA1, ignore DSA103            batch arithmetic without one rule
    select DSA, ignore DSA4, select DSA401 in one layer: the longer prefix wins, so DSA401 is asked all the same

Settings come in layers, the command line last. A layer that selects starts anew; one that only ignores takes away from
what the layers before it have chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ds_accum.config.spelling import closest_word
from ds_accum.errors import UsageError
from ds_accum.lint.linter import RULE_FAILED
from ds_accum.lint.rule import Rule

__all__ = ["EVERYTHING", "Choice", "closest_code", "selected", "validated"]

EVERYTHING = "ALL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One layer: codes or prefixes, upper case, as `validated` gives them. `select` is None where it selects nothing
    anew."""

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()


def selected(rules: Sequence[Rule], layers: Iterable[Choice]) -> tuple[Rule, ...]:
    """The rules that the layers leave, in their order; all of them without any layer."""
    chosen = {rule.code for rule in rules}
    for layer in layers:
        for rule in rules:
            taken = -1 if layer.select is None else _longest(rule.code, layer.select)
            left_out = _longest(rule.code, layer.ignore)
            if left_out >= max(taken, 0):
                chosen.discard(rule.code)
            elif taken >= 0:
                chosen.add(rule.code)
            elif layer.select is not None:
                chosen.discard(rule.code)
    return tuple(rule for rule in rules if rule.code in chosen)


def validated(words: Iterable[str], rules: Sequence[Rule]) -> tuple[str, ...]:
    """The codes and prefixes in upper case. Raises UsageError for one that fits no rule."""
    given = []
    for word in words:
        code = word.upper()
        if code == RULE_FAILED:
            raise UsageError(
                f"{RULE_FAILED} is no rule: it says that one has failed",
                remedy="leave the rule itself out, by its code",
            )
        if code != EVERYTHING and not (code and any(rule.code.startswith(code) for rule in rules)):
            meant = closest_code(word, rules)
            remedy = f"did you mean {meant}?" if meant else "`ds-accum rule DSA` lists every rule"
            raise UsageError(f"{word!r} is no code of a rule, and no code begins so", remedy=remedy)
        given.append(code)
    return tuple(given)


def closest_code(word: str, rules: Sequence[Rule]) -> str | None:
    """The code that a wrong word was meant for: of the rule of that name, or one that looks like it."""
    named = next((rule.code for rule in rules if rule.name == word.lower().replace("_", "-")), None)
    if named is not None:
        return named
    if any(rule.code.startswith(word.upper()) for rule in rules):
        return None  # a prefix: which of its rules is meant, nobody can tell
    code = word.upper().replace("O", "0").replace("I", "1")
    return closest_word(code, [rule.code for rule in rules], at_least=0.7)


def _longest(code: str, words: Iterable[str]) -> int:
    """The length of the longest prefix of a code among these words; 0 for ALL, -1 if there is none."""
    lengths = (0 if word == EVERYTHING else len(word) for word in words if word == EVERYTHING or code.startswith(word))
    return max(lengths, default=-1)
