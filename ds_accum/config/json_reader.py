"""Strict JSON text -> values and their places: json.loads decides what is valid, the Hjson reader says where it is.

Every JSON text is an Hjson text of the same shape, so one reader finds the places for both. And what Hjson takes beyond
JSON (comments, trailing commas, keys without quotes) is what a broken JSON text is read with in spite of that.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from ds_accum.config.document import BYTE_ORDER_MARK, Problem, ProblemKind, Reading, Span
from ds_accum.config.hjson_reader import read_hjson
from ds_accum.config.wording import shortened, token_end

if TYPE_CHECKING:
    from ds_accum.config.document import Limits

__all__ = ["read_json"]

_NOT_A_NUMBER = re.compile(r'"(?:[^"\\]|\\.)*"|-?Infinity|NaN')

_EXPECTED = {
    "Expecting value": "a value",
    "Expecting property name enclosed in double quotes": "a key in double quotes",
    "Expecting ':' delimiter": "':' after the key",
    "Expecting ',' delimiter": "',' or a closing bracket",
    "Extra data": "the end of the text",
}
_USUAL_CAUSES = (
    (re.compile(r"//|#|/\*"), "JSON has no comments; DeepSpeed allows them, Hugging Face and Accelerate do not"),
    (re.compile(r"True\b|False\b|None\b"), "this is Python; JSON writes true, false and null"),
    (re.compile(r"'"), "JSON takes double quotes only"),
    (re.compile("[\u201c\u201d\u2018\u2019]"), "use straight quotes"),
    (re.compile(r"[+.]?[0-9]"), "a JSON number has no leading +, 0 or ., no underscores and no digits of other bases"),
)


def read_json(text: str, limits: Limits) -> Reading:
    """Values as json.loads gives them; for a text that it refuses, what Hjson makes of it, and the problems."""
    reading = read_hjson(text, limits, is_json=True)
    if any(problem.kind is ProblemKind.TOO_DEEP for problem in reading.problems):
        return reading
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        return _read_broken(text, error, reading)
    except (ValueError, RecursionError):
        return _read_too_many_digits(text, limits, reading)
    if "NaN" in text or "Infinity" in text:
        reading = read_hjson(_NOT_A_NUMBER.sub(_digits_for_words, text), limits)
    duplicates = [problem for problem in reading.problems if problem.kind is ProblemKind.DUPLICATE_KEY]
    return Reading(value=value, root=reading.root, problems=duplicates)


def _digits_for_words(token: re.Match[str]) -> str:
    """NaN and Infinity, which json reads as numbers and Hjson as strings up to the end of the line, in digits."""
    return token[0] if token[0].startswith('"') else "1" * len(token[0])


def _read_too_many_digits(text: str, limits: Limits, reading: Reading) -> Reading:
    """What json.loads refuses with a plain ValueError: an integer with more digits than Python converts."""
    if any(problem.kind is ProblemKind.NUMBER for problem in reading.problems):
        return reading
    # Hjson takes the number for a string, because of what follows it.
    digits = re.search(rf"-?[0-9]{{{limits.integer_digits + 1},}}", text)
    start, end = digits.span() if digits else (0, 1)
    message = f"{shortened(text[start:end])} can't be read as a number: more than {limits.integer_digits} digits"
    problem = Problem(kind=ProblemKind.NUMBER, message=message, span=Span(start, end))
    return Reading(value=reading.value, root=reading.root, problems=[problem, *reading.problems])


def _read_broken(text: str, error: json.JSONDecodeError, reading: Reading) -> Reading:
    problem = _problem(text, error)
    if problem.kind is ProblemKind.EMPTY:
        return Reading(value={}, root=None, problems=[problem])
    first = min((p.span.start for p in reading.problems if p.kind is ProblemKind.SYNTAX), default=len(text) + 1)
    line_end = text.find("\n", error.pos)
    if first <= (line_end if line_end >= 0 else len(text)):
        # Hjson stumbles there as well, and its reader knows more about what is open than json's message tells.
        return reading
    others = [other for other in reading.problems if other.kind is not ProblemKind.EMPTY]
    return Reading(value=reading.value, root=reading.root, problems=[problem, *others])


def _problem(text: str, error: json.JSONDecodeError) -> Problem:
    if text.startswith(BYTE_ORDER_MARK):
        message = "a JSON text must not begin with a byte order mark"
        return Problem(
            kind=ProblemKind.SYNTAX, message=message, span=Span(0, 1), help="save the file without it", path=()
        )
    if not text.strip(" \t\n\r"):
        return Problem(kind=ProblemKind.EMPTY, message="there is no value in the text", span=Span(0, 0), path=())
    start = error.pos
    end = token_end(text, start)
    found = shortened(text[start:end]) if end > start else "the end of the text"
    remedy = next((cause for pattern, cause in _USUAL_CAUSES if pattern.match(text, start)), None)
    comma = len(text[:start].rstrip(" \t\n\r")) - 1
    if text[start : start + 1] in ("}", "]") and text[comma] == ",":
        start, end = comma, comma + 1
        found, remedy = f"'{text[error.pos]}'", "remove the comma before it"
    # A message that is not in the table is one that a later Python has put in other words.
    expected = _EXPECTED.get(error.msg, f"valid JSON ({error.msg[:1].lower()}{error.msg[1:]})")
    message = f"expected {expected}, found {found}"
    return Problem(kind=ProblemKind.SYNTAX, message=message, span=Span(start, end), help=remedy)
