"""A config in base64 is read as DeepSpeed reads it, and a path is not mistaken for one."""

from __future__ import annotations

import base64

import hjson
import pytest

from ds_accum.config.base64_config import read_base64
from ds_accum.config.document import read_text


def encode(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"train_batch_size": 8}', {"train_batch_size": 8}),
        ("train_batch_size: 8", {"train_batch_size": 8}),
        ('{"a": "名?>~"}', {"a": "名?>~"}),
        ('{"a": 1, "a": 2}', {"a": 2}),
        ("{}", {}),
    ],
)
def test_an_object_is_read(text: str, value: dict[str, object]) -> None:
    document = read_base64(encode(text))
    assert document is not None
    assert (document.text, document.value) == (text, value)


def test_line_ends_stand_as_they_are() -> None:
    # DeepSpeed decodes the text and does not open it as a file, which would make a \n of each \r.
    text = "{a: '''\n  x\r  y\n  '''}"
    document = read_base64(encode(text))
    assert document is not None
    assert document.value == dict(hjson.loads(text)) != read_text(text).value


def test_an_object_with_a_mistake_is_still_meant_as_one() -> None:
    document = read_base64(encode('{"a": 1,\n "b" 2}'))
    assert document is not None and document.problems


@pytest.mark.parametrize(
    "word",
    [
        "configs/zero2.json",
        "zero",
        "",
        "名",
        "x" * 4001,
        encode("[1, 2]"),
        encode("just words"),
        base64.urlsafe_b64encode(b"\xff{}").decode(),
        encode("{\0}"),
    ],
)
def test_anything_else_is_none(word: str) -> None:
    assert read_base64(word) is None


@pytest.mark.engine
@pytest.mark.parametrize("text", ['{"train_batch_size": 8}', '{"train_batch_size": 4, "train_batch_size": 8}'])
def test_deepspeed_reads_the_same(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    from deepspeed.runtime.config import DeepSpeedConfig

    document = read_base64(encode(text))
    assert document is not None
    assert DeepSpeedConfig(encode(text)).train_batch_size == document.value["train_batch_size"] == 8
