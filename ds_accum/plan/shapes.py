"""A model's shape from its name or its `config.json`: the keys are those of Hugging Face transformers.

    read_shape("llama-2-7b")             # configs/models/llama-2-7b.json, which ds-accum brings along
    read_shape("path/to/model")          # a folder with a config.json, or the file itself

Only what is known exactly is read: another `model_type` is refused, never guessed, because a guessed shape is a wrong
number of parameters. `num_nextn_predict_layers` (DeepSeek-V3's multi-token prediction) is no part of the main model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ds_accum.batch.wording import require_integer
from ds_accum.errors import ConfigError, UsageError
from ds_accum.plan.shape import ExpertShape, LatentAttention, ModelShape
from ds_accum.plan.shipped import shipped_folder

__all__ = ["model_names", "read_shape", "shape_of"]

_LONGEST_FILE = 10_000_000
"""Bytes; a config.json has a few thousand."""


def model_names() -> tuple[str, ...]:
    """The models that ds-accum brings along, by name."""
    return tuple(sorted(path.stem for path in shipped_folder("models").glob("*.json")))


def read_shape(path_or_name: str | Path) -> ModelShape:
    """The shape of a model: one of `model_names()`, a config.json, or a folder that holds one.

    Raises UsageError where there is nothing to read, ConfigError where it is no shape known here.
    """
    name = str(path_or_name)
    if not name.strip():
        raise UsageError("no model is named", remedy=f"give a config.json, or one of {', '.join(model_names())}")
    if name in model_names():
        path = shipped_folder("models") / f"{name}.json"
        return shape_of(_read_json(path), name=name)
    path = Path(path_or_name)
    try:
        if path.is_dir():
            path = path / "config.json"
        if not path.exists():
            raise _no_such_model(path, name)
    except (OSError, ValueError) as error:  # a name that no file can have
        if isinstance(error, UsageError):
            raise
        raise UsageError.because("can't read the model", error) from error
    return shape_of(_read_json(path), name=path.parent.name if path.name == "config.json" else path.stem)


def shape_of(values: object, *, name: str) -> ModelShape:
    """The shape that the values of a config.json describe. Raises ConfigError."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{name} holds no JSON object", remedy="give the config.json of a model")
    kind = values.get("model_type")
    if kind is None:
        raise ConfigError(f"{name} has no model_type", remedy=f"give one of {', '.join(_READERS)}")
    if not isinstance(kind, str) or kind not in _READERS:
        said = kind if isinstance(kind, str) and len(kind) <= 40 else "of this file"
        raise ConfigError(
            f"the shape of model_type {said} is not known", remedy=f"model types that are: {', '.join(_READERS)}"
        )
    return _READERS[kind](_Values(values, name or "model"))


def _no_such_model(path: Path, name: str) -> UsageError:
    from difflib import get_close_matches

    close = get_close_matches(name.lower(), model_names(), n=1)
    remedy = f"did you mean {close[0]}?" if close else f"give a config.json, or one of {', '.join(model_names())}"
    return UsageError(f"there is no model {name[:80]} and no file {str(path)[:80]}", remedy=remedy)


def _read_json(path: Path) -> object:
    try:
        if path.stat().st_size > _LONGEST_FILE:
            raise UsageError(f"{path} is too long for a config.json", remedy="give the config.json of a model")
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError.because(f"can't read {path}", error) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON in UTF-8", remedy="give the config.json of a model") from error


class _Values:
    """The values of one config.json, each checked as it is read."""

    def __init__(self, values: Mapping[str, Any], name: str) -> None:
        self._values = values
        self.name = name

    def integer(self, *keys: str, default: int | None = None, minimum: int = 1) -> int:
        """The first of these keys that is set and not null. Raises ConfigError without one or a default."""
        for key in keys:
            value = self._values.get(key)
            if value is not None:
                require_integer(value, name=f"{key} of {self.name}", minimum=minimum, error=ConfigError)
                assert isinstance(value, int)
                return value
        if default is None:
            raise ConfigError(f"{self.name} has no {keys[0]}", remedy=f"add {keys[0]} to the config.json")
        return default

    def truth(self, *keys: str, default: bool) -> bool:
        """The first of these keys that is set, which has to be true or false."""
        for key in keys:
            value = self._values.get(key)
            if isinstance(value, bool):
                return value
            if value is not None:
                raise ConfigError(f"{key} of {self.name} is neither true nor false", remedy=f"set {key} to one of them")
        return default

    def refuse(self, key: str, *, unless: tuple[object, ...], remedy: str) -> None:
        """Raises ConfigError where a key says what no shape here can be; null and left out say nothing."""
        value = self._values.get(key)
        if value is not None and value not in unless:
            raise ConfigError(f"the shape of {self.name} with this {key} is not known", remedy=remedy)

    def common(self, *, key_value_heads: int | None = None, head_size: int | None = None) -> dict[str, Any]:
        """What nearly all model types write under the same keys; the arguments are a type's own defaults."""
        heads = self.integer("num_attention_heads")
        hidden = self.integer("hidden_size")
        return {
            "name": self.name,
            "num_layers": self.integer("num_hidden_layers"),
            "hidden_size": hidden,
            "num_attention_heads": heads,
            "num_key_value_heads": self.integer("num_key_value_heads", default=key_value_heads or heads),
            "head_size": self.integer("head_dim", default=head_size or self._head_size(hidden, heads)),
            "ffn_hidden_size": self.integer("intermediate_size"),
            "vocabulary_size": self.integer("vocab_size"),
            "norm": "rmsnorm",
            "gated_mlp": True,
            "mlp_bias": False,
        }

    def _head_size(self, hidden: int, heads: int) -> int | None:
        if self._values.get("head_dim") is None and hidden % heads:
            raise ConfigError(
                f"hidden_size {hidden} of {self.name} is no multiple of {heads} heads (remainder {hidden % heads})",
                remedy="add head_dim, or change one of them",
            )
        return hidden // heads or None


def _llama(values: _Values) -> ModelShape:
    bias = values.truth("attention_bias", default=False)
    shape = values.common() | {"mlp_bias": values.truth("mlp_bias", default=False)}
    return ModelShape(
        **shape,
        tied_embeddings=values.truth("tie_word_embeddings", default=False),
        attention_bias=bias,
        attention_output_bias=bias,
    )


def _plain(values: _Values) -> ModelShape:
    """Mistral: Llama without any bias."""
    tied = values.truth("tie_word_embeddings", default=False)
    return ModelShape(**values.common(key_value_heads=8), tied_embeddings=tied, attention_bias=False)


def _mixtral(values: _Values) -> ModelShape:
    experts = ExpertShape(
        num_experts=values.integer("num_local_experts"),
        experts_per_token=values.integer("num_experts_per_tok"),
        ffn_hidden_size=values.integer("intermediate_size"),
    )
    tied = values.truth("tie_word_embeddings", default=False)
    return ModelShape(**values.common(key_value_heads=8), tied_embeddings=tied, attention_bias=False, experts=experts)


def _qwen2(values: _Values) -> ModelShape:
    """Biases on queries, keys and values alone, without a key of their own."""
    tied = values.truth("tie_word_embeddings", default=False)
    return ModelShape(**values.common(key_value_heads=32), tied_embeddings=tied, attention_bias=True)


def _qwen3(values: _Values) -> ModelShape:
    return _with_normalized_queries(values, values.common(key_value_heads=32, head_size=128))


def _with_normalized_queries(values: _Values, common: dict[str, Any], experts: ExpertShape | None = None) -> ModelShape:
    bias = values.truth("attention_bias", default=False)
    return ModelShape(
        **common,
        tied_embeddings=values.truth("tie_word_embeddings", default=False),
        attention_bias=bias,
        attention_output_bias=bias,
        query_key_norm=True,
        experts=experts,
    )


def _qwen3_moe(values: _Values) -> ModelShape:
    _refuse_dense_layers(values)
    return _with_normalized_queries(
        values,
        values.common(key_value_heads=4),
        ExpertShape(
            num_experts=values.integer("num_experts", "num_local_experts"),
            experts_per_token=values.integer("num_experts_per_tok"),
            ffn_hidden_size=values.integer("moe_intermediate_size"),
            layer_interval=values.integer("decoder_sparse_step", default=1),
        ),
    )


def _refuse_dense_layers(values: _Values) -> None:
    """Layers by number that have no experts, beside those that decoder_sparse_step leaves out."""
    values.refuse("mlp_only_layers", unless=([],), remedy="leave it empty for an estimate with experts in those layers")


def _qwen2_moe(values: _Values) -> ModelShape:
    _refuse_dense_layers(values)
    experts = ExpertShape(
        num_experts=values.integer("num_experts"),
        experts_per_token=values.integer("num_experts_per_tok"),
        ffn_hidden_size=values.integer("moe_intermediate_size"),
        shared_ffn_hidden_size=values.integer("shared_expert_intermediate_size"),
        shared_gate=True,
        layer_interval=values.integer("decoder_sparse_step", default=1),
    )
    return ModelShape(
        **values.common(key_value_heads=16),
        tied_embeddings=values.truth("tie_word_embeddings", default=False),
        attention_bias=values.truth("qkv_bias", default=True),
        experts=experts,
    )


def _deepseek_v3(values: _Values) -> ModelShape:
    inner = values.integer("moe_intermediate_size")
    # transformers ignores it (5.24, models/deepseek_v3/modeling_deepseek_v3.py), the model's own code does not.
    values.refuse("moe_layer_freq", unless=(1,), remedy="set it to 1, as transformers takes it whatever it says")
    experts = ExpertShape(
        num_experts=values.integer("n_routed_experts"),
        experts_per_token=values.integer("num_experts_per_tok"),
        ffn_hidden_size=inner,
        shared_ffn_hidden_size=inner * values.integer("n_shared_experts", default=1, minimum=0),
        router_bias=True,
        num_dense_layers=values.integer("first_k_dense_replace", default=3, minimum=0),
    )
    latent = LatentAttention(
        query_rank=values.integer("q_lora_rank", default=0, minimum=0),
        key_value_rank=values.integer("kv_lora_rank"),
        nope_head_size=values.integer("qk_nope_head_dim"),
        rope_head_size=values.integer("qk_rope_head_dim"),
        value_head_size=values.integer("v_head_dim"),
    )
    if values.truth("attention_bias", default=False):
        raise ConfigError(
            f"the shape of {values.name} with attention_bias is not known", remedy="set attention_bias to false"
        )
    return ModelShape(
        **values.common() | {"head_size": latent.query_head_size},
        tied_embeddings=values.truth("tie_word_embeddings", default=False),
        attention_bias=False,
        experts=experts,
        latent_attention=latent,
    )


def _gpt2(values: _Values) -> ModelShape:
    hidden, heads = values.integer("n_embd", "hidden_size"), values.integer("n_head", "num_attention_heads")
    if hidden % heads:
        raise ConfigError(
            f"n_embd {hidden} of {values.name} is no multiple of n_head {heads} (remainder {hidden % heads})",
            remedy="change one of them",
        )
    return ModelShape(
        name=values.name,
        num_layers=values.integer("n_layer", "num_hidden_layers"),
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_size=hidden // heads,
        ffn_hidden_size=values.integer("n_inner", default=4 * hidden),
        vocabulary_size=values.integer("vocab_size"),
        learned_positions=values.integer("n_positions", "max_position_embeddings"),
        gated_mlp=False,
        tied_embeddings=values.truth("tie_word_embeddings", default=True),
        attention_bias=True,
        attention_output_bias=True,
        mlp_bias=True,
        norm="layernorm",
    )


def _gpt_neox(values: _Values) -> ModelShape:
    bias = values.truth("attention_bias", default=True)
    common = values.common()
    changed = {"norm": "layernorm", "gated_mlp": False, "mlp_bias": True}
    return ModelShape(
        **common | changed | {"num_key_value_heads": common["num_attention_heads"]},
        tied_embeddings=values.truth("tie_word_embeddings", default=False),
        attention_bias=bias,
        attention_output_bias=bias,
    )


_READERS: dict[str, Callable[[_Values], ModelShape]] = {
    "deepseek_v3": _deepseek_v3,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "llama": _llama,
    "mistral": _plain,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
}
"""By `model_type`; the parameters of each are compared with those of transformers' own model in the tests."""
