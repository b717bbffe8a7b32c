"""Which of Hugging Face's models drop the first label of each sequence, as far as their name and config tell."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from ds_accum.engine.hugging_face import model_shifts_labels  # noqa: E402


def _hugging_face(name: str, *, seq2seq: bool = False) -> nn.Module:
    """A module as far as its name and config tell: `tests/engine` does not need transformers."""
    model: Any = type(name, (nn.Module,), {})()
    model.config = SimpleNamespace(model_type="any", is_encoder_decoder=seq2seq)
    return model  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("name", "shifts"),
    [
        ("LlamaForCausalLM", True),
        ("GPT2LMHeadModel", True),
        ("BertForMaskedLM", False),
        ("BertForTokenClassification", False),
        # Decoders of their own, whose loss takes the labels as they are.
        ("BartForCausalLM", False),
        ("WhisperForCausalLM", False),
        ("XLNetLMHeadModel", False),
        ("ProphetNetForCausalLM", None),
        ("MusicgenForCausalLM", None),
        ("BertForSequenceClassification", None),
        ("LlavaForConditionalGeneration", None),
    ],
)
def test_whether_a_hugging_face_model_shifts_is_known_or_not_guessed(name: str, shifts: bool | None) -> None:
    assert model_shifts_labels(_hugging_face(name)) is shifts


def test_an_encoder_decoder_takes_its_labels_as_they_are() -> None:
    assert model_shifts_labels(_hugging_face("T5ForConditionalGeneration", seq2seq=True)) is False


def test_an_adapter_is_what_it_wraps() -> None:
    for inner, shifts in (("LlamaForCausalLM", True), ("BartForCausalLM", False), ("MusicgenForCausalLM", None)):
        wrapped = _hugging_face(inner)
        adapter: Any = _hugging_face("PeftModelForCausalLM")
        adapter.get_base_model = lambda wrapped=wrapped: wrapped
        assert model_shifts_labels(adapter) is shifts


def test_nothing_is_known_of_other_models() -> None:
    assert model_shifts_labels(nn.Identity()) is None
    assert model_shifts_labels(nn.Linear(1, 1)) is None
