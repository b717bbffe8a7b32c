"""Activations are what autograd keeps for the backward of transformers' own models."""

from __future__ import annotations

from typing import Any

import pytest

from ds_accum.batch import ParallelLayout
from ds_accum.plan.memory.activations import layer_activations
from ds_accum.plan.shapes import shape_of
from ds_accum.plan.training import Dtype, TrainingSetup

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore")]

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
}
BATCH, LENGTH = 2, 128


def kept_by_a_layer(kind: str, dtype: Dtype, attention: str) -> tuple[int, dict[str, Any]]:
    """Bytes that autograd keeps of three layers less those of two; and the config."""
    transformers = pytest.importorskip("transformers")
    import torch

    def kept(layers: int) -> tuple[int, dict[str, Any]]:
        config = transformers.AutoConfig.for_model(
            kind, **SIZES, num_hidden_layers=layers, attn_implementation=attention
        )
        model = transformers.AutoModelForCausalLM.from_config(config)
        model = model.to({"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]).train()
        of_the_model = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
        # The tensors themselves, so that no storage is used twice.
        saved: dict[int, Any] = {}

        def save(tensor: Any) -> Any:
            saved[tensor.untyped_storage().data_ptr()] = tensor
            return tensor

        words = torch.arange(BATCH * LENGTH).view(BATCH, LENGTH) % SIZES["vocab_size"]
        with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
            result = model(input_ids=words, labels=words)
        total = sum(
            tensor.untyped_storage().nbytes() for address, tensor in saved.items() if address not in of_the_model
        )
        del result
        return total, config.to_dict()

    (two, config), (three, _) = kept(2), kept(3)
    return three - two, config


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_layer_in_plain_pytorch_keeps_what_is_estimated(kind: str, dtype: Dtype, attention: str) -> None:
    kept, config = kept_by_a_layer(kind, dtype, attention)
    setup = TrainingSetup(
        zero_stage=0,
        micro_batch_size=BATCH,
        gradient_accumulation_steps=1,
        sequence_length=LENGTH,
        dtype=dtype,
        fused_kernels=False,
        flash_attention=attention == "sdpa",
    )
    shape = shape_of(config, name=kind)
    estimated = layer_activations(shape, ParallelLayout(world_size=1), setup, has_experts=False).total
    assert estimated == pytest.approx(kept, rel=0.01)
