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


# PEFT asks transformers by names that are to go.
@pytest.mark.filterwarnings(
    "ignore:.*is_gradient_checkpointing:FutureWarning", "ignore:.*past_key_values:FutureWarning"
)
@pytest.mark.parametrize(("kind", "shifts"), [("lora", True), ("prefix", True), ("prompt", False), ("p-tuning", False)])
def test_the_count_is_what_a_model_of_peft_takes_its_mean_over(kind: str, shifts: bool) -> None:
    """Virtual tokens come before the batch's own, and the loss drops the first label of them instead."""
    pytest.importorskip("transformers")
    peft = pytest.importorskip("peft")
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=50, n_positions=64))
    task = {"task_type": peft.TaskType.CAUSAL_LM}
    virtual = {"num_virtual_tokens": 3, **task}
    adapted = peft.get_peft_model(
        model,
        {
            "lora": lambda: peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, **task),
            "prefix": lambda: peft.PrefixTuningConfig(**virtual),
            "prompt": lambda: peft.PromptTuningConfig(**virtual),
            "p-tuning": lambda: peft.PromptEncoderConfig(encoder_hidden_size=8, **virtual),
        }[kind](),
    ).eval()
    assert model_shifts_labels(adapted) is shifts
    ids = torch.randint(0, 50, (2, 5))
    output = adapted(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids)
    labels = torch.cat([torch.full((2, output.logits.shape[1] - 5), -100), ids], dim=1)[:, 1:]
    total = nn.functional.cross_entropy(output.logits[:, :-1].flatten(0, 1), labels.flatten(), reduction="sum")
    counted = ids.numel() - (len(ids) if shifts else 0)
    assert float(total.detach()) / counted == pytest.approx(float(output.loss.detach()), rel=1e-5)
