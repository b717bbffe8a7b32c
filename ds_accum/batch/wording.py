"""How integers are checked on their way in, and said on their way out in a message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log10

from ds_accum.errors import DSAccumError

# Python refuses to print an integer of more than 4,300 digits, and nobody can read one of more than a few dozen.
LONGEST_SHOWN_BITS = 128


def show(value: int) -> str:
    """The decimal digits, or "about 10^N" past 128 bits: a message must never fail or flood a terminal."""
    if value.bit_length() <= LONGEST_SHOWN_BITS:
        return str(value)
    return f"about {'-' if value < 0 else ''}10^{round(value.bit_length() * log10(2))}"


def show_product(factors: Iterable[tuple[str, int]]) -> str:
    """Named factors: "micro batch 8 x data parallel 4 = 32", or "micro batch 8" for a single one."""
    product = 1
    said = []
    for name, value in factors:
        product *= value
        said.append(f"{name} {show(value)}")
    return said[0] if len(said) == 1 else f"{' x '.join(said)} = {show(product)}"


def show_list(items: Sequence[str], *, last: str = " or ") -> str:
    """One of several: "8", "8 or 16", "8, 16 or 32"."""
    return last.join(filter(None, (", ".join(items[:-1]), *items[-1:])))


def show_values(values: Iterable[int], last: str = " or ") -> str:
    """One of several integers: "8", "8 or 16", "8, 16 or 32"; those that read alike once."""
    return show_list(list(dict.fromkeys(show(value) for value in values)), last=last)


def require_integer(value: object, *, name: str, minimum: int = 1, error: type[DSAccumError]) -> None:
    """Raise `error` unless `value` is an integer (a bool is none) of at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise error(
            f"{name} must be an integer, not {_show_any(value)}",
            remedy=f"give {name} as a whole number, without quotes or a fraction",
        )
    if value < minimum:
        raise error(f"{name} must be at least {minimum}, not {show(value)}", remedy=f"set {name} to {minimum} or more")


def _show_any(value: object) -> str:
    """A value short enough to be read back, else the name of its type."""
    if value is None or isinstance(value, (bool, float)) or (isinstance(value, str) and len(value) <= 20):
        return repr(value)
    return f"a {type(value).__name__}"
