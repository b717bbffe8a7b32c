"""Config texts to try the readers on, and how two readings are compared."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import strategies as st

from ds_accum.config.document import Document, ProblemKind

REFUSALS = frozenset({ProblemKind.SYNTAX, ProblemKind.NUMBER, ProblemKind.TAG})
"""Problems where the syntax's own library raises. It reads the others, or a limit of ours comes first."""

TOKENS = (
    *("{", "}", "[", "]", ",", ":", ", ", ": ", '"', "'", "'''", "#", "//", "/*", "*/", "/", "=", "~", "\\"),
    *("\n", "\n", "\n  ", " ", "  ", "\t", "\r\n", "\r", "\xa0", "\x0b", "\x0c", "\x1f", "\x85", "\u2028", "\ufeff"),
    *('"a"', '"b"', "'c'", "a", "b", "a:", "key: ", "x y", '"k": ', "{{", "}}", "é", "😀", "\x00", "\x7f", "\ud800"),
    *("1", "-1", "0", "-0", "1.5", "8.0", "1e1", "1e400", "1e10", "123456789012.0", "-", ".5", "08", "+8", "1_000"),
    *("null", "true", "false", "True", "nul", "NaN", "Infinity", "\u0661", "1\u0662", "9" * 4301),
    *("\\n", "\\u0041", "\\u12", "\\ud83d\\ude00", "\\u+123", "\\u-001", "\\u 12 ", "\\ud800\\u", "\\x", "\\'"),
)
"""Everything that matters to Hjson or JSON, and some that looks as if it did."""

YAML_TOKENS = (
    *(":", ": ", "- ", "\n", "\n", "  ", "\t", "{", "}", "[", "]", ",", ", ", "#", " #", '"', "'", "|", ">", "\r\n"),
    *("&a ", "*a", "*a ", "!!str ", "!!int ", "!foo ", "!!set ", "!!omap ", "<<: *a\n", "<<", "?", "? ", "%", "="),
    *("---\n", "...\n", "~", "1", "1e3", "\\", "\u2028", "\x85", "\ufeff", "\r", "é", "😀", "@", "`", "-", "!"),
    *("|2\n", ">-\n", "|+\n", "yes", "2001-01-01", "2001-99-99", "a: ", "a: &a ", " ", "1_000", "0x_", "1:20", ".inf"),
    *("\x00", "\ud800", '"\\u12"', "a: 1\n", "b: 2\n", "0o7", "08", "1.5", "9" * 4301),
)

HJSON_BY_HAND = """\
// Somebody's config, with everything that Hjson allows.
{
  "train_batch_size": 64,   # the whole batch
  train_micro_batch_size_per_gpu: 8.0
  'gradient_clipping' : 1e0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95], "eps": 1e-8,}}
  /* several
     lines */
  zero_optimization: {
    stage: 2
    offload_optimizer: { "device": "cpu" }
    note: taken to the end of the line, // all of it
  }
  comment:
    '''
    first
      second
    '''
  "fp16": {"enabled": true, "loss_scale": 0}, "empty": {}, "list": []
}
"""

YAML_BY_HAND = """\
# accelerate config
compute_environment: LOCAL_MACHINE
deepspeed_config: &deepspeed
  gradient_accumulation_steps: 4
  zero_stage: 3
  offload_optimizer_device: 'none'   # quoted
copy: *deepspeed
merged:
  <<: *deepspeed
  zero_stage: 2
text: |
  one
    two
downcast_bf16: 'no'
same_network: yes
gpu_ids: [0, 1,
  2]
machines:
- rank: 0
- rank: 1
"pipe-parallel-size": 0
started: 2024-05-01
"""


def base_texts(repository: Path, suffixes: tuple[str, ...]) -> list[str]:
    """Real texts to change: the ready configs, and the two above."""
    found = [path for path in sorted((repository / "configs").iterdir()) if path.suffix in suffixes]
    return [HJSON_BY_HAND, YAML_BY_HAND, *(path.read_text(encoding="utf-8") for path in found)]


def mutated(random: Random, texts: list[str], tokens: tuple[str, ...]) -> str:
    """One of the texts, or a piece of it, with a few tokens put in, replaced or removed."""
    text = random.choice(texts)
    if random.random() < 0.5:
        start = random.randrange(len(text))
        text = text[start : start + random.randrange(5, 300)]
        text = "{" + text + "}" if random.random() < 0.5 else text
    for _ in range(random.choice((0, 1, 1, 1, 2, 3, 5))):
        start = random.randrange(len(text) + 1)
        end = start + random.choice((0, 0, 1, 1, 2, 10))
        text = text[:start] + (random.choice(tokens) if random.random() < 0.8 else "") + text[end:]
    return text


def token_soups(tokens: tuple[str, ...]) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(tokens), max_size=30).map("".join)


@st.composite
def hjson_texts(draw: st.DrawFn) -> str:
    """Mostly valid Hjson, with every decoration it allows and a few that it does not."""
    blanks = st.sampled_from(("", "", " ", "\n", "  ", "\n    ", "\t", "\r\n", " # c\n", "/* x, */", "// y\n", "\r"))
    commas = st.sampled_from((",", ",", "\n", ",\n", " , ", "", " "))
    keys = st.sampled_from(
        ('"a"', '"b"', '"c d"', "'e'", "f", "g_h", "i.j", "k#l", "é", '""', '"\\u0041"', "m\xa0", "\xa0", 'n"o', "//z")
    )
    strings = ('"s"', "'q'", '""', '"\\n\\u00e9"', '"\\ud83d\\ude00"', '"//"', '"{"', '"é😀"', "'it\\'s'", '"\\/"')
    numbers = ("1", "-0", "0", "8.0", "1e1", "1.5e-3", "1e10", "9999999999.0", "1e400", "-1.0", "1E+2", "1 ", "1\t")
    words = ("true", "false", "null", "true ", "auto\n", "True\n", "1_000\n", "08\n", "x y z\n", "nullx\n", "-\n")
    oddities = ("\xa0\n", "1\xa0\n", "null\x0b\n", '\xa0"a"\n', "true false\n", "C:\\a\n", "1\u0662\n")
    multiline = (
        "''''''",
        "'''a'''",
        "'''a\n   b\n'''",
        "'''\n  x\n  y\n  '''",
        "''' \n\ta\r\nb'''",
        "'''\r\n a\r\n'''",
    )

    def member(depth: int) -> str:
        return draw(blanks) + draw(keys) + draw(st.sampled_from(("", " ", "\n"))) + ":" + draw(blanks) + value(depth)

    def value(depth: int) -> str:
        kind = draw(st.integers(0, 9)) if depth < 4 else 9
        count = draw(st.integers(0, 3)) if kind < 4 else 0
        if kind < 3:
            return "{" + "".join(member(depth + 1) + draw(commas) for _ in range(count)) + draw(blanks) + "}"
        if kind == 3:
            items = "".join(draw(blanks) + value(depth + 1) + draw(commas) for _ in range(count))
            return "[" + items + draw(blanks) + "]"
        return draw(st.sampled_from((*strings, *numbers, *words, *oddities, *multiline)))

    if draw(st.integers(0, 3)) == 0:
        members = (member(1) + draw(st.sampled_from(("\n", ",\n", "\n\n"))) for _ in range(draw(st.integers(1, 3))))
        return draw(blanks) + "".join(members)
    return draw(st.sampled_from(("", "", "\ufeff"))) + draw(blanks) + value(0) + draw(blanks)


@st.composite
def json_texts(draw: st.DrawFn) -> str:
    """JSON as a program writes it, sometimes with one token put in."""
    scalars = (None, True, False, 0, -7, 10**20, 0.5, -0.0, 1e300, float("nan"), float("-inf"), 8.0)
    strings = ("", "a", "NaN, Infinity", "\\", '"', "é😀", "\ud83d", "\t\x00", "/", "\u2028")
    leaf = st.sampled_from((*scalars, *strings))
    keys = st.sampled_from(("a", "b", "NaN", *strings))

    def value(depth: int) -> Any:
        kind = draw(st.integers(0, 3)) if depth < 4 else 0
        count = draw(st.integers(0, 3)) if kind else 0
        if kind == 1:
            return [value(depth + 1) for _ in range(count)]
        return {draw(keys): value(depth + 1) for _ in range(count)} if kind else draw(leaf)

    indent = draw(st.sampled_from((None, 2, "\t")))
    text = json.dumps(value(0), indent=indent, ensure_ascii=draw(st.booleans()))
    if draw(st.integers(0, 2)) == 0:
        start = draw(st.integers(0, len(text)))
        end = start + draw(st.integers(0, 1))
        text = text[:start] + draw(st.sampled_from((*TOKENS, '"a":1,', "1e400"))) + text[end:]
    return text


def identical(left: Any, right: Any) -> bool:
    """Equal, of the same types (a dict may be an OrderedDict), in the same order, down to the sign of a zero."""
    if isinstance(left, dict) and isinstance(right, dict):
        return list(map(_typed, left)) == list(map(_typed, right)) and all(identical(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(identical, left, right))
    if isinstance(left, float) and isinstance(right, float):
        both_nan = math.isnan(left) and math.isnan(right)
        return both_nan or (left == right and math.copysign(1, left) == math.copysign(1, right))
    return type(left) is type(right) and bool(left == right)


def _typed(key: Any) -> tuple[type, Any]:
    return type(key), key


def walk(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every value below, with its path."""
    yield path, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in items:
        yield from walk(inner, (*path, step))


def refusals(document: Document) -> list[str]:
    """Messages of the problems that the syntax's own library has as well."""
    return [problem.message for problem in document.problems if problem.kind in REFUSALS]


def is_limited(document: Document) -> bool:
    """Whether a limit of ours came first, so that there is nothing to compare."""
    limits = (ProblemKind.TOO_LARGE, ProblemKind.TOO_DEEP, ProblemKind.TOO_MANY_ALIASES)
    return any(problem.kind in limits for problem in document.problems)


def assert_in_bounds(document: Document) -> None:
    """Every span of a document lies in its text, and every value that could be read has one."""
    size = len(document.text)
    for problem in document.problems:
        for span in (problem.span, *problem.related):
            assert 0 <= span.start <= span.end <= size, problem
            assert document.position(span.start).line >= 1
    for path, value in walk(document.value):
        place = document.value_span(path)
        assert place is not None or path == (), path
        assert place is None or 0 <= place.start <= place.end <= size, (path, value)
