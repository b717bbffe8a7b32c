"""The hostfile is read as DeepSpeed's launcher reads it, and what that refuses is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from ds_accum.cli.hostfile import parse_hostfile, read_hostfile
from ds_accum.errors import UsageError

ACCEPTED = [
    ("worker-0 slots=4\nworker-1 slots=8\n", {"worker-0": 4, "worker-1": 8}),
    ("# a comment\n\n  worker-0   slots=4   # the rest is skipped\n\t\n", {"worker-0": 4}),
    ("10.0.0.1\tslots=2 max_slots=4\r\n", {"10.0.0.1": 2}),
    ("a slots=0\nb slots=1", {"a": 0, "b": 1}),
    ("a slots=1\n #b slots=1", {"a": 1}),
]

REFUSED = [
    ("a slots=4\nb slots = 4\n", "h, line 2: expected HOST slots=N, found 'b slots = 4'"),
    ("a\n", "h, line 1: expected HOST slots=N, found 'a'"),
    ("\n\na slots=four", "h, line 3: expected HOST slots=N, found 'a slots=four'"),
    ("a slots=4\n# b\na slots=4\n", "h, line 3: a is listed twice, first on line 1"),
    ("", "h lists no slots"),
    ("# nobody\n", "h lists no slots"),
]


@pytest.mark.parametrize(("text", "slots"), ACCEPTED)
def test_hosts_and_slots_are_read_in_their_order(text: str, slots: dict[str, int]) -> None:
    read = parse_hostfile(text, name="h")
    assert list(read.items()) == list(slots.items())


@pytest.mark.parametrize(("text", "sentence"), REFUSED)
def test_a_bad_hostfile_is_an_error_that_names_the_line(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_hostfile(text, name="h")
    assert str(raised.value) == sentence
    assert raised.value.remedy


def test_a_host_file_without_slots_is_refused() -> None:
    with pytest.raises(UsageError, match="h lists no slots"):
        parse_hostfile("a slots=0", name="h")


def test_a_missing_hostfile_is_an_error_not_one_machine(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"can't read hostfile .*hosts: no such file or directory"):
        read_hostfile(tmp_path / "hosts")


@pytest.mark.engine
@pytest.mark.parametrize("text", [text for text, _ in ACCEPTED] + [text for text, _ in REFUSED])
def test_deepspeeds_launcher_agrees(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    from deepspeed.launcher.runner import _parse_hostfile

    try:
        expected: dict[str, int] | None = dict(_parse_hostfile(text.splitlines(keepends=True)))
    except ValueError:
        expected = None
    try:
        read: dict[str, int] | None = parse_hostfile(text, name="h")
    except UsageError:
        read = None
    assert read == expected
