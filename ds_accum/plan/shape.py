"""The shape of a decoder-only transformer: every size that parameters, memory and arithmetic follow from.

    shape = read_shape("llama-2-7b")        # ds_accum.plan.shapes
    shape.parameters                        # 6_738_415_616
    shape.flops_per_token(4096)             # of one forward and backward, in floating-point operations

Its tensors, one by one, are in `ds_accum.plan.tensors`; `parameters` is their sum, so that the two can't disagree.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

from ds_accum.batch.wording import require_integer, show
from ds_accum.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from ds_accum.plan.tensors import ParameterTensor

__all__ = ["ExpertShape", "LatentAttention", "ModelShape"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertShape:
    """The mixture of experts that replaces the MLP of some layers.

    Layer i (from 0) has experts if i >= `num_dense_layers` and (i + 1) is a multiple of `layer_interval`.
    `ffn_hidden_size` is that of one expert; `shared_ffn_hidden_size` that of the experts every token goes through
    together, 0 without any. `router_bias` is the one value per expert that DeepSeek-V3 balances the load with.
    """

    num_experts: int
    experts_per_token: int
    ffn_hidden_size: int
    shared_ffn_hidden_size: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    num_dense_layers: int = 0
    layer_interval: int = 1

    def __post_init__(self) -> None:
        may_be_zero = ("shared_ffn_hidden_size", "num_dense_layers")
        _require_integers(self, may_be_zero=may_be_zero)
        if self.experts_per_token > self.num_experts:
            raise ConfigError(
                f"a token can't go to {self.experts_per_token} of {self.num_experts} experts",
                remedy=f"set the experts of a token to {self.num_experts} or fewer",
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class LatentAttention:
    """Attention whose keys and values come from one small vector a token (DeepSeek-V2, arXiv 2405.04434, section 2.1).

    `query_rank` is 0 where queries come from the hidden state directly. A query and a key of one head have
    `nope_head_size` + `rope_head_size` values, a value of one head has `value_head_size`.
    """

    query_rank: int
    key_value_rank: int
    nope_head_size: int
    rope_head_size: int
    value_head_size: int

    def __post_init__(self) -> None:
        _require_integers(self, may_be_zero=("query_rank",))

    @property
    def query_head_size(self) -> int:
        """Values of one head's query or key."""
        return self.nope_head_size + self.rope_head_size


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelShape:
    """A decoder-only transformer. All sizes in elements; `attention_bias` is that of queries, keys and values.

    Raises ConfigError if a size is no positive integer, or the heads don't group.
    """

    name: str
    num_layers: int
    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_size: int
    ffn_hidden_size: int
    vocabulary_size: int
    gated_mlp: bool
    tied_embeddings: bool
    attention_bias: bool
    mlp_bias: bool
    norm: Literal["layernorm", "rmsnorm"]
    learned_positions: int = 0
    attention_output_bias: bool = False
    query_key_norm: bool = False
    experts: ExpertShape | None = None
    latent_attention: LatentAttention | None = None

    def __post_init__(self) -> None:
        _require_integers(self, may_be_zero=("learned_positions",))
        if self.num_layers > _MOST_LAYERS:
            raise ConfigError(
                f"{show(self.num_layers)} layers are more than the {_MOST_LAYERS} that are counted one by one",
                remedy="give the real number of layers of the model",
            )
        if self.num_attention_heads % self.num_key_value_heads:
            raise ConfigError(
                f"{self.num_attention_heads} attention heads can't share {self.num_key_value_heads} key-value heads"
                f" evenly (remainder {self.num_attention_heads % self.num_key_value_heads})",
                remedy="set the key-value heads to a divisor of the attention heads",
            )

    @property
    def parameters(self) -> int:
        """Elements of all parameters together; tied embeddings count once."""
        return sum(tensor.elements * tensor.count for tensor in self._tensors())

    @property
    def active_parameters(self) -> int:
        """Parameters that one token is multiplied with or looked up in: of the experts only those it goes to."""
        share = (self.experts.experts_per_token, self.experts.num_experts) if self.experts else (1, 1)
        total = 0
        for tensor in self._tensors():
            elements = tensor.elements * tensor.count
            total += elements * share[0] // share[1] if tensor.is_expert else elements
        return total

    @property
    def num_expert_layers(self) -> int:
        """Layers with a mixture of experts in place of the MLP."""
        return sum(self.is_expert_layer(layer) for layer in range(self.num_layers))

    def is_expert_layer(self, layer: int) -> bool:
        """Whether layer `layer`, from 0, has experts."""
        experts = self.experts
        return experts is not None and layer >= experts.num_dense_layers and (layer + 1) % experts.layer_interval == 0

    def flops_per_token(self, sequence_length: int) -> int:
        """Floating-point operations of one forward and backward, per token position, recompute not included.

        A multiply and an add are two operations, backward costs twice the forward (Narayanan et al. 2021,
        arXiv 2104.04473, appendix; their 4 is this 3 and one forward of full recompute). Of the matrices those that
        a token is multiplied with: of the experts its own, never the embedding, always the output. Attention is
        counted over the whole sequence, as if it were not causal, as there:

            forward = 2 x matrices + 2 x layers x heads x (query head size + value head size) x sequence length
        """
        require_integer(sequence_length, name="sequence length", error=UsageError)
        return 3 * (2 * self._multiplied_parameters() + self._attention_flops_per_key() * sequence_length)

    def _multiplied_parameters(self) -> int:
        """Elements of the matrices that one token is multiplied with in a forward."""
        share = (self.experts.experts_per_token, self.experts.num_experts) if self.experts else (1, 1)
        total = self.hidden_size * self.vocabulary_size  # the output, whether tied or not
        for tensor in self._tensors():
            if tensor.is_matrix and tensor.place == "layer":
                elements = tensor.elements * tensor.count
                total += elements * share[0] // share[1] if tensor.is_expert else elements
        return total

    def _attention_flops_per_key(self) -> int:
        """Scores and weighted values: operations of one query with one key, over all heads and layers, forward."""
        latent = self.latent_attention
        sizes = latent.query_head_size + latent.value_head_size if latent else 2 * self.head_size
        return 2 * self.num_layers * self.num_attention_heads * sizes

    def _tensors(self) -> tuple[ParameterTensor, ...]:
        from ds_accum.plan.tensors import model_tensors

        return model_tensors(self)


def _require_integers(shape: object, *, may_be_zero: tuple[str, ...]) -> None:
    for field in fields(shape):  # type: ignore[arg-type]
        value = getattr(shape, field.name)
        if field.type == "int":
            name = field.name.replace("_", " ")
            require_integer(value, name=name, minimum=int(field.name not in may_be_zero), error=ConfigError)
            if value > _LARGEST:
                raise ConfigError(f"{name} is beyond 10^12", remedy=f"give the real {name} of the model")


_LARGEST = 10**12
"""No size of a model is near it; the numbers in a report stay readable."""

_MOST_LAYERS = 10_000
"""Dozens of times those of any model; every layer takes a moment."""
