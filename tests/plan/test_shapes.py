"""A shape has the parameters of the real model, to the last one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ds_accum.errors import ConfigError, DSAccumError, UsageError
from ds_accum.plan.shape import ModelShape
from ds_accum.plan.shapes import model_names, read_shape, shape_of

# As counted in the published weights; the GPT-3 of 2020 and Megatron-LM's models by the formula of Narayanan et al. 2021
# (arXiv 2104.04473), equation 2, and what its biases add.
PARAMETERS = {
    "deepseek-v3": 671_026_419_200,
    "gpt-125m": 125_226_240,
    "gpt3-175b": 174_604_259_328,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "megatron-22b": 22_074_273_792,
    "megatron-530b": 529_600_819_200,
    "megatron-1t": 1_008_038_758_400,
    "mixtral-8x7b": 46_702_792_704,
}

# Small ones, with every switch that changes a count.
VARIATIONS: list[dict[str, Any]] = [
    {"model_type": "llama", "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    {"model_type": "llama", "head_dim": 24, "num_key_value_heads": 1},
    {"model_type": "mistral"},
    {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
    {"model_type": "qwen2"},
    {"model_type": "qwen3", "head_dim": 16},
    {
        "model_type": "qwen2_moe",
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 48,
        "decoder_sparse_step": 2,
    },
    {"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
    {
        "model_type": "deepseek_v3",
        "n_routed_experts": 8,
        "n_shared_experts": 2,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "first_k_dense_replace": 1,
        "n_group": 2,
        "topk_group": 1,
        "q_lora_rank": 24,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 12,
    },
    {
        "model_type": "deepseek_v3",
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "n_group": 1,
        "topk_group": 1,
        "q_lora_rank": None,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 12,
        "tie_word_embeddings": True,
        "num_hidden_layers": 5,
    },
    # What transformers takes where a key is missing.
    *(
        {"model_type": kind, "num_attention_heads": 32, "num_key_value_heads": None, "hidden_size": 256}
        for kind in ("llama", "mistral", "qwen2", "qwen3")
    ),
    {"model_type": "gpt_neox"},
    {"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 3, "n_positions": 32, "vocab_size": 100},
]
SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 32,
}


def parameters_of_transformers(values: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """What transformers' own model of a config has, built without memory; and the config with all its defaults.

    DeepSeek-V3's router bias is a parameter of the published weights and a buffer of this model.
    """
    transformers = pytest.importorskip("transformers")
    import torch

    keys = {key: value for key, value in values.items() if key not in ("model_type", "architectures")}
    config = transformers.AutoConfig.for_model(values["model_type"], **keys)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    biases = sum(value.numel() for name, value in model.named_buffers() if name.endswith("e_score_correction_bias"))
    return sum(parameter.numel() for parameter in model.parameters()) + biases, config.to_dict()


def test_every_shipped_model_has_a_published_count() -> None:
    assert PARAMETERS.keys() == set(model_names())


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_shipped_model_has_exactly_the_published_parameters(name: str) -> None:
    assert read_shape(name).parameters == PARAMETERS[name]


@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.filterwarnings("ignore")
def test_a_shipped_model_has_the_parameters_of_transformers(repository: Path, name: str) -> None:
    values = json.loads((repository / "configs" / "models" / f"{name}.json").read_text("utf-8"))
    assert parameters_of_transformers(values)[0] == read_shape(name).parameters


@pytest.mark.parametrize("values", VARIATIONS, ids=lambda values: " ".join(map(str, values.values())))
@pytest.mark.filterwarnings("ignore")
def test_every_switch_counts_as_in_transformers(values: dict[str, Any]) -> None:
    given = values if values["model_type"] == "gpt2" else SMALL | values
    given = {key: value for key, value in given.items() if value is not None or key == "q_lora_rank"}
    expected, whole = parameters_of_transformers(given)
    # Also with all the keys that transformers writes.
    assert shape_of(whole, name="model").parameters == expected
    assert shape_of(given | {"vocab_size": 100}, name="model").parameters == expected


@pytest.mark.parametrize(
    ("name", "active"), [("mixtral-8x7b", 12.9e9), ("deepseek-v3", 37.6e9), ("llama-2-7b", 6_738_415_616)]
)
def test_the_parameters_of_one_token_are_those_of_its_experts(name: str, active: float) -> None:
    """Jiang et al. 2024 (arXiv 2401.04088): 12.9 billion; DeepSeek-AI 2024 (arXiv 2412.19437): 37 billion."""
    assert read_shape(name).active_parameters == pytest.approx(active, rel=0.005)


@pytest.mark.parametrize(("name", "sequence_length"), [("gpt3-175b", 2048), ("megatron-530b", 2048)])
def test_operations_are_those_of_the_published_formula(name: str, sequence_length: int) -> None:
    """Narayanan et al. 2021 (arXiv 2104.04473), equation 3: 96 B s l h^2 (1 + s/6h + V/16lh), with one forward repeated.

    The repeated forward is of the layers alone: 72 for three passes, and the output's 6 V h without it.
    """
    shape = read_shape(name)
    hidden, layers = shape.hidden_size, shape.num_layers
    in_layers = 72 * layers * hidden**2 * (1 + sequence_length / (6 * hidden))
    assert shape.flops_per_token(sequence_length) == pytest.approx(in_layers + 6 * hidden * shape.vocabulary_size)


def test_a_shape_is_read_from_a_folder_and_from_a_file(tmp_path: Path, repository: Path) -> None:
    text = (repository / "configs" / "models" / "llama-2-7b.json").read_text("utf-8")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(text, encoding="utf-8")
    (tmp_path / "other.json").write_text(text, encoding="utf-8")
    named = [read_shape(tmp_path / "mine"), read_shape(str(tmp_path / "other.json"))]
    assert [shape.name for shape in named] == ["mine", "other"]
    assert all(shape.parameters == PARAMETERS["llama-2-7b"] for shape in named)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "3",
        "{",
        '{"model_type": "llama"}',
        '{"model_type": "falcon"}',
        '{"model_type": 3}',
        "{}",
        '{"model_type": "llama", "hidden_size": 64.5}',
        '{"model_type": "llama", "hidden_size": NaN, "num_attention_heads": 4}',
        '{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 0}',
        '{"model_type": "llama", "hidden_size": -64, "num_attention_heads": 4}',
        '{"model_type": "llama", "hidden_size": 65, "num_attention_heads": 4}',
        '{"model_type": "gpt2", "n_embd": 65, "n_head": 4}',
        json.dumps({"model_type": "llama", **SMALL, "num_key_value_heads": 3}),
        json.dumps({"model_type": "llama", **SMALL, "hidden_size": 10**30, "num_attention_heads": 1}),
        json.dumps({"model_type": "llama", **SMALL, "tie_word_embeddings": "yes"}),
        json.dumps({"model_type": "mixtral", **SMALL, "num_local_experts": 2, "num_experts_per_tok": 3}),
        "[" * 100_000,
    ],
)
def test_what_is_no_shape_is_said_in_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises((ConfigError, UsageError)) as caught:
        read_shape(path)
    message = str(caught.value)
    assert message and not message.endswith(".") and len(message) < 300 and caught.value.remedy


@pytest.mark.parametrize("name", ["llama-2-7", "no/such/folder", "", "\0", "a" * 5000])
def test_what_is_not_there_is_said_with_what_is(name: str) -> None:
    with pytest.raises(DSAccumError) as caught:
        read_shape(name)
    assert len(str(caught.value)) < 300


def test_a_misspelt_name_is_told_what_was_meant() -> None:
    with pytest.raises(UsageError) as caught:
        read_shape("llama-2-7")
    assert caught.value.remedy == "did you mean llama-2-7b?"


def test_a_name_that_is_empty_is_no_model() -> None:
    with pytest.raises(UsageError, match="^no model is named$"):
        read_shape("")


@pytest.mark.parametrize("layers", [10_001, 20_000_000, 10**12, 10**400])
def test_more_layers_than_anyone_has_are_refused_before_they_are_counted(layers: int) -> None:
    with pytest.raises(ConfigError, match="layers are more than the 10000 that are counted one by one|10.12"):
        ModelShape(**{**read_shape_fields(), "num_layers": layers})


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("qwen3_moe", "mlp_only_layers", [0, 1]),
        ("qwen3_moe", "mlp_only_layers", 3),
        ("qwen2_moe", "mlp_only_layers", [0]),
        ("deepseek_v3", "moe_layer_freq", 2),
    ],
)
def test_a_key_that_would_change_which_layers_have_experts_is_not_passed_over(
    repository: Path, kind: str, key: str, value: object
) -> None:
    values = json.loads((repository / "configs" / "models" / "deepseek-v3.json").read_text("utf-8"))
    values |= {"model_type": kind, "num_experts": 4, "shared_expert_intermediate_size": 8, "num_experts_per_tok": 2}
    shape_of(values | {key: None}, name="mine")
    with pytest.raises(ConfigError, match=f"the shape of mine with this {key} is not known"):
        shape_of(values | {key: value}, name="mine")


def test_a_shape_of_zero_layers_is_refused() -> None:
    with pytest.raises(ConfigError, match="num layers must be at least 1, not 0"):
        ModelShape(**{**read_shape_fields(), "num_layers": 0})


def read_shape_fields() -> dict[str, Any]:
    from dataclasses import fields

    shape = read_shape("gpt-125m")
    return {field.name: getattr(shape, field.name) for field in fields(shape)}
