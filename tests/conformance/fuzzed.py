"""Files that no config reader expects: bytes and texts of every kind, by a seed, from real configs and from nothing.

fuzz(seed, samples)      always the same input for a seed and the same samples
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from ds_accum.config.launch import Framework, Launch

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzedInput:
    """What the linter is given. The file name's extension says how the bytes are read."""

    kind: str
    data: bytes
    filename: str
    launch: Launch


def bundled_samples() -> list[bytes]:
    """The repository's own configs, the good and the broken ones."""
    folders = (REPOSITORY / "configs", REPOSITORY / "tests" / "data")
    return [path.read_bytes() for folder in folders for path in sorted(folder.rglob("*")) if path.suffix in _EXTENSIONS]


def fuzz(seed: int, samples: Sequence[bytes]) -> FuzzedInput:
    random = Random(seed)
    kind = random.choice(sorted(_KINDS))
    return FuzzedInput(
        kind=kind,
        data=_KINDS[kind](random, samples),
        filename=f"fuzzed{random.choice(_EXTENSIONS)}",
        launch=Launch(
            world_size=random.choice((None, 1, 2, 8, 64)),
            framework=random.choice(_FRAMEWORKS),
            client_optimizer=random.choice((None, True, False)),
        ),
    )


_EXTENSIONS = (".json", ".json", ".hjson", ".yaml", ".yml", ".txt")
_FRAMEWORKS: tuple[Framework | None, ...] = (None, None, "raw", "huggingface", "accelerate", "lightning", "gpt-neox")


# --- from nothing -----------------------------------------------------------------------------------------------------


def _random_bytes(random: Random, samples: Sequence[bytes]) -> bytes:
    return random.randbytes(random.choice((0, 1, 2, 10, 100, 5_000)))


def _random_text(random: Random, samples: Sequence[bytes]) -> bytes:
    ranges = ((32, 126), (0, 31), (0x7F, 0x24F), (0x2000, 0x206F), (0xD800, 0xDFFF), (0xE000, 0x10FFFF))
    characters = (chr(random.randint(*random.choice(ranges))) for _ in range(random.choice((1, 5, 50, 1_000))))
    return "".join(characters).encode("utf-8", random.choice(("surrogatepass", "replace")))


def _deep_nesting(random: Random, samples: Sequence[bytes]) -> bytes:
    depth = random.choice((10, 100, 900, 1_000, 10_000, 60_000))
    opening = random.choice(("[", "{", '{"a":', "{a:", "[[", "- ", "{a: [", "? ", "'''", "/*", "("))
    closing = random.choice(("", "]", "}", "]}", "1" + "}" * depth, "1" + "]" * depth))
    return (opening * depth + closing).encode()


def _huge_numbers(random: Random, samples: Sequence[bytes]) -> bytes:
    digits = random.choice((20, 300, 400, 4_299, 4_300, 4_301, 10_000, 200_000))
    number = random.choice(
        (
            "9" * digits,
            "-" + "9" * digits,
            "1e" + "9" * min(digits, 400),
            "1e-" + "9" * min(digits, 400),
            "0." + "0" * digits + "1",
            "0" * digits,
            "0x" + "f" * digits,
            "1" + "0" * digits + ".0",
            "1_" * digits,
            f"1e{digits}",
        )
    )
    key = random.choice(
        (
            "train_batch_size",
            "train_micro_batch_size_per_gpu",
            "gradient_accumulation_steps",
            "gradient_clipping",
            "sequence_parallel_size",
            "steps_per_print",
        )
    )
    return random.choice(
        (
            f'{{"{key}": {number}}}',
            f'{{"{key}": {number}, "train_batch_size": {number}, "gradient_accumulation_steps": 3}}',
            f'{{"train_batch_size": 8, "zero_optimization": {{"stage": {number}, "reduce_bucket_size": {number}}}}}',
            f'{{"train_batch_size": 8, "fp16": {{"enabled": {number}, "loss_scale": {number}}}}}',
            f'{{"train_batch_size": 8, "optimizer": {{"type": "Adam", "params": {{"lr": {number}}}}}}}',
            number,
        )
    ).encode()


_TOKENS = (
    *(
        "{ } [ ] : , # // /* */ ' \" ''' \"\"\" \\ \\n \\u \\ud800 \\x - + . e E 0 1 -1 1e5 0x1 null true false None".split()
    ),
    *("True auto NaN Infinity - ? & * ! | > %YAML --- ... <<: *a &a !!python/object:os.system !!int !!binary".split()),
    *("train_batch_size zero_optimization stage optimizer type params fp16 enabled deepspeed_config ds_accum".split()),
    *("\n", "\r", "\r\n", "\t", " ", "\x00", "\ufeff", "\u2028", "\u202e", "\x85", "\x1b[31m", "é", "𝕏", "\ud800"),
)


def _token_soup(random: Random, samples: Sequence[bytes]) -> bytes:
    separator = random.choice(("", " ", "\n"))
    tokens = (random.choice(_TOKENS) for _ in range(random.choice((3, 10, 40, 400))))
    return separator.join(tokens).encode("utf-8", "surrogatepass")


def _many_entries(random: Random, samples: Sequence[bytes]) -> bytes:
    count = random.choice((100, 100, 1_000, 1_000, 10_000))
    line = random.choice(
        ('"k%d": 1,\n', '"train_batch_size": %d,\n', "k%d: x\n", '"fp16": {"k%d": 1},\n', "- %d\n", "# %d\n")
    )
    return ("{\n" * random.randint(0, 1) + "".join(line % number for number in range(count)) + "}").encode()


def _aliases(random: Random, samples: Sequence[bytes]) -> bytes:
    """The "billion laughs" of YAML, and aliases of themselves."""
    width, depth = random.choice(((9, 9), (2, 30), (1, 500), (50, 3)))
    lines = ["a0: &a0 [x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, depth)]
    lines.append(random.choice(("", "a: &a [*a]", "<<: *a0", "zero_optimization: &z {stage: *z}", "fp16: *missing")))
    return "\n".join(lines).encode()


# --- from a real config -----------------------------------------------------------------------------------------------


def _truncated(random: Random, samples: Sequence[bytes]) -> bytes:
    sample = random.choice(samples)
    start = random.choice((0, 0, 0, random.randrange(len(sample) + 1)))
    return sample[start : random.randrange(len(sample) + 1)]


def _mutated(random: Random, samples: Sequence[bytes]) -> bytes:
    data = bytearray(random.choice(samples))
    for _ in range(random.choice((1, 1, 2, 5, 30))):
        at = random.randrange(len(data) + 1)
        span = random.choice((1, 1, 2, 8, 50))
        action = random.randrange(4)
        if action == 0:
            data[at : at + span] = b""
        elif action == 1:
            data[at:at] = random.choice(_TOKENS).encode("utf-8", "surrogatepass")
        elif action == 2:
            data[at : at + span] = random.randbytes(span)
        else:
            data[at:at] = data[at : at + span * 4]
    return bytes(data)


def _spliced(random: Random, samples: Sequence[bytes]) -> bytes:
    first, second = random.choice(samples), random.choice(samples)
    return first[: random.randrange(len(first) + 1)] + second[random.randrange(len(second) + 1) :]


def _with_other_values(random: Random, samples: Sequence[bytes]) -> bytes:
    """One token of a config replaced by another of its tokens, all over the file."""
    words = random.choice(samples).split(b'"')
    return b'"'.join(random.choice(words) if random.random() < 0.1 else word for word in words)


def _with_control_characters(random: Random, samples: Sequence[bytes]) -> bytes:
    data = random.choice(samples)
    byte = random.choice(
        (b"\x00", b"\x1b[2J", b"\x7f", b"\xe2\x80\xae", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\r", b"\x0c")
    )
    at = random.randrange(len(data) + 1)
    return data[:at] + byte + data[at:]


def _in_another_encoding(random: Random, samples: Sequence[bytes]) -> bytes:
    text = random.choice(samples).decode("utf-8", "replace") + random.choice(("", "# é", "# 日本", "\u202e"))
    encoding = random.choice(
        ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig", "latin-1", "cp037", "shift-jis")
    )
    return text.encode(encoding, "replace")


_KINDS: dict[str, Callable[[Random, Sequence[bytes]], bytes]] = {
    "random bytes": _random_bytes,
    "random text": _random_text,
    "deep nesting": _deep_nesting,
    "huge numbers": _huge_numbers,
    "token soup": _token_soup,
    "many entries": _many_entries,
    "aliases": _aliases,
    "truncated": _truncated,
    "mutated": _mutated,
    "spliced": _spliced,
    "other values": _with_other_values,
    "control characters": _with_control_characters,
    "another encoding": _in_another_encoding,
}
