"""Models small enough to try every layout of, and the published ones of Narayanan et al. 2021 (arXiv 2104.04473)."""

from __future__ import annotations

from dataclasses import replace

from ds_accum.plan.shape import ExpertShape, ModelShape

SMALL = ModelShape(
    name="small",
    num_layers=6,
    hidden_size=768,
    num_attention_heads=12,
    num_key_value_heads=4,
    head_size=64,
    ffn_hidden_size=2048,
    vocabulary_size=32000,
    gated_mlp=True,
    tied_embeddings=False,
    attention_bias=False,
    mlp_bias=False,
    norm="rmsnorm",
)
SMALL_WITH_EXPERTS = replace(
    SMALL,
    name="small with experts",
    experts=ExpertShape(num_experts=4, experts_per_token=2, ffn_hidden_size=1024, num_dense_layers=1),
)


def gpt(*, heads: int, hidden_size: int, num_layers: int) -> ModelShape:
    """A GPT of the paper: vocabulary 51,200, sequences of 2,048."""
    return ModelShape(
        name=f"gpt-{num_layers}-{hidden_size}",
        num_layers=num_layers,
        hidden_size=hidden_size,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_size=hidden_size // heads,
        ffn_hidden_size=4 * hidden_size,
        vocabulary_size=51200,
        gated_mlp=False,
        tied_embeddings=True,
        attention_bias=True,
        attention_output_bias=True,
        mlp_bias=True,
        norm="layernorm",
        learned_positions=2048,
    )
