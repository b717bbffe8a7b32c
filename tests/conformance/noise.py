"""A config as text the way people write it: JSON, or Hjson with comments, missing quotes and commas, now and then broken.

write(random, values)      text that DeepSpeed usually, but by no means always, reads back as `values`
"""

from __future__ import annotations

import json
from random import Random
from typing import Any


def write(random: Random, values: dict[str, Any]) -> str:
    if random.random() < 0.01:
        return random.choice(_NO_CONFIGS)
    style = random.random()
    if style < 0.3:
        return json.dumps(values)
    if style < 0.5:
        text = json.dumps(values, indent=random.choice((2, 4, "\t")), ensure_ascii=False)
    else:
        text = _Hjson(random).write(values)
    if random.random() < 0.1:
        text = text.replace("\n", random.choice(("\r\n", "\r")))
    if random.random() < 0.05:
        text = "\ufeff" + text
    if random.random() < 0.04:
        text = damaged(random, text)
    return text


# Texts that hold something else than an object, or hardly anything.
_NO_CONFIGS = (
    "",
    " \n",
    "{}",
    "[]",
    "null",
    "true",
    "8",
    '"x"',
    "x",
    "[{}]",
    "# a note",
    "{}{}",
    "{",
    "x: 1",
    "\ufeff",
    "{:}",
)


class _Hjson:
    def __init__(self, random: Random) -> None:
        self._random = random
        # How often each liberty is taken; a text usually takes one or two of them.
        self._comments, self._bare_keys, self._bare_strings, self._no_commas, self._trailing, self._single = (
            random.choice((0.0, 0.0, 0.0, 0.2, 0.9)) for _ in range(6)
        )
        self._duplicates = random.choice((0.0,) * 15 + (0.3,))

    def write(self, values: dict[str, Any]) -> str:
        text = self._object(values, 0)
        if values and self._random.random() < 0.1:
            # Hjson lets the root do without its braces.
            text = text.strip()[1:-1]
        return self._comment() + text + self._comment()

    def _value(self, value: Any, depth: int) -> str:
        if isinstance(value, dict):
            return self._object(value, depth)
        if isinstance(value, list):
            return "[" + ", ".join(self._value(item, depth + 1) for item in value) + "]"
        if isinstance(value, str):
            return self._string(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return self._number(value)
        return json.dumps(value)

    def _object(self, values: dict[str, Any], depth: int) -> str:
        entries = list(values.items())
        if entries and self._random.random() < self._duplicates:
            entries.insert(self._random.randint(0, len(entries)), self._random.choice(entries))
        indent = "  " * (depth + 1)
        lines = []
        for number, (key, value) in enumerate(entries):
            last = number == len(entries) - 1
            text = self._value(value, depth + 1)
            if isinstance(value, str) and self._random.random() < self._bare_strings:
                # The rest of the line belongs to such a string, a comma too.
                lines.append(f"{indent}{self._key(key)}: {value}")
                continue
            comma = "," if self._random.random() >= self._no_commas else ""
            if last and self._random.random() >= self._trailing:
                comma = ""
            lines.append(f"{indent}{self._key(key)}: {text}{comma}{self._comment()}")
        return "{\n" + "\n".join(lines) + "\n" + "  " * depth + "}" if lines else "{}"

    def _key(self, key: str) -> str:
        if key.isidentifier() and self._random.random() < self._bare_keys:
            return key
        return self._string(key)

    def _string(self, text: str) -> str:
        if "'" not in text and "\\" not in text and self._random.random() < self._single:
            return f"'{text}'" if text else "''"
        return json.dumps(text, ensure_ascii=self._random.random() < 0.5)

    def _number(self, number: float) -> str:
        plain = json.dumps(number)
        if isinstance(number, int) and 0 < number < 10**6 and self._random.random() < 0.1:
            return self._random.choice((f"{number}.0", f"{number}e0", f"{number / 10}e1", f"0{number}", f"+{number}"))
        return plain

    def _comment(self) -> str:
        if self._random.random() >= self._comments:
            return ""
        return self._random.choice((" # a note", " // a note", " /* a note */", "\n# a line\n", "\n\n", "\t"))


def damaged(random: Random, text: str) -> str:
    """The text with one character too few, too many, or without its end."""
    at = random.randrange(len(text) or 1)
    return random.choice(
        (
            text[:at],
            text[:at] + text[at + 1 :],
            text[:at] + random.choice("{}[],:\"'#/ \n\x00\\eE.-+0") + text[at:],
            text + random.choice(("}", "]", ",", "x", "{}", "\x00")),
        )
    )
