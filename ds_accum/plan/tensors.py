"""The parameter tensors of a model, one by one, and how tensor parallelism cuts each.

    attention   query, key, value [h -> heads x head size], output [heads x head size -> h]
    MLP         up (and gate) [h -> f], down [f -> h]; of each expert the same
    norms       two a layer and one at the end; layernorm has a weight and a bias, rmsnorm a weight
    ends        word embedding [V, h], learned positions [n, h], output [h -> V] unless tied

Where a matrix is cut in its outputs its bias is cut too; where in its inputs, every rank has the whole bias (Shoeybi
et al. 2019, arXiv 1909.08053, section 3). Norms, positions, the router, and the projections to the latent vectors are
whole on every tensor-parallel rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ds_accum.plan.shape import ModelShape

__all__ = ["ParameterTensor", "embedding_tensors", "head_tensors", "layer_tensors", "model_tensors"]

Place = Literal["embedding", "layer", "head"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterTensor:
    """`count` tensors of `elements` each. `heads` > 0: cut by whole heads of a GQA group, at least one a rank."""

    name: str
    elements: int
    count: int = 1
    is_split: bool = False
    is_expert: bool = False
    is_matrix: bool = True
    heads: int = 0
    place: Place = "layer"

    def elements_per_rank(self, tensor_parallel_size: int) -> int:
        """Elements of one of them on one tensor-parallel rank; a remainder is rounded up."""
        if not self.is_split:
            return self.elements
        if self.heads:
            return self.elements // self.heads * -(-self.heads // tensor_parallel_size)
        return -(-self.elements // tensor_parallel_size)


@lru_cache(maxsize=256)
def layer_tensors(shape: ModelShape, *, has_experts: bool) -> tuple[ParameterTensor, ...]:
    """The parameters of one layer, in the order of the forward."""
    hidden = shape.hidden_size
    return (
        _norm(shape, "norm before attention", hidden),
        *_attention(shape),
        _norm(shape, "norm before the MLP", hidden),
        *(_experts(shape) if has_experts else _mlp(shape, shape.ffn_hidden_size)),
    )


@lru_cache(maxsize=256)
def embedding_tensors(shape: ModelShape) -> tuple[ParameterTensor, ...]:
    """What stands before the first layer."""
    words = ParameterTensor(
        name="word embedding", elements=shape.vocabulary_size * shape.hidden_size, is_split=True, place="embedding"
    )
    if not shape.learned_positions:
        return (words,)
    positions = shape.learned_positions * shape.hidden_size
    return (words, ParameterTensor(name="position embedding", elements=positions, place="embedding"))


@lru_cache(maxsize=256)
def head_tensors(shape: ModelShape) -> tuple[ParameterTensor, ...]:
    """What stands behind the last layer: the last norm and, unless the embedding serves for it, the output."""
    norm = _norm(shape, "last norm", shape.hidden_size, place="head")
    if shape.tied_embeddings:
        return (norm,)
    elements = shape.vocabulary_size * shape.hidden_size
    return (norm, ParameterTensor(name="output", elements=elements, is_split=True, place="head"))


@lru_cache(maxsize=256)
def model_tensors(shape: ModelShape) -> tuple[ParameterTensor, ...]:
    """All parameters, those of all layers of a kind together: each `count` is that of the model."""
    from dataclasses import replace

    found = [*embedding_tensors(shape)]
    with_experts = shape.num_expert_layers
    for has_experts, layers in ((False, shape.num_layers - with_experts), (True, with_experts)):
        if layers:
            tensors = layer_tensors(shape, has_experts=has_experts)
            found += [replace(tensor, count=tensor.count * layers) for tensor in tensors]
    return (*found, *head_tensors(shape))


def _norm(shape: ModelShape, name: str, size: int, *, place: Place = "layer") -> ParameterTensor:
    count = 2 if shape.norm == "layernorm" else 1
    return ParameterTensor(name=name, elements=size, count=count, is_matrix=False, place=place)


def _attention(shape: ModelShape) -> tuple[ParameterTensor, ...]:
    if shape.latent_attention is not None:
        return _latent_attention(shape)
    hidden, size = shape.hidden_size, shape.head_size
    queries, pairs = shape.num_attention_heads, shape.num_key_value_heads
    found = [
        ParameterTensor(name="query", elements=hidden * queries * size, heads=queries, is_split=True),
        ParameterTensor(name="key, value", elements=hidden * pairs * size, heads=pairs, count=2, is_split=True),
    ]
    if shape.attention_bias:
        found += [
            _vector("query bias", queries * size, heads=queries),
            _vector("key, value bias", pairs * size, heads=pairs, count=2),
        ]
    if shape.query_key_norm:
        found.append(ParameterTensor(name="norm of queries, keys", elements=size, count=2, is_matrix=False))
    found.append(
        ParameterTensor(name="attention output", elements=queries * size * hidden, heads=queries, is_split=True)
    )
    if shape.attention_output_bias:
        found.append(ParameterTensor(name="attention output bias", elements=hidden, is_matrix=False))
    return tuple(found)


def _latent_attention(shape: ModelShape) -> tuple[ParameterTensor, ...]:
    latent, hidden, heads = shape.latent_attention, shape.hidden_size, shape.num_attention_heads
    assert latent is not None
    found = []
    of_queries = hidden
    if latent.query_rank:
        found += [
            ParameterTensor(name="query to latent", elements=hidden * latent.query_rank),
            _norm(shape, "norm of latent queries", latent.query_rank),
        ]
        of_queries = latent.query_rank
    key_and_value = latent.nope_head_size + latent.value_head_size
    return (
        *found,
        ParameterTensor(name="query", elements=of_queries * heads * latent.query_head_size, heads=heads, is_split=True),
        ParameterTensor(name="key, value to latent", elements=hidden * (latent.key_value_rank + latent.rope_head_size)),
        _norm(shape, "norm of latent keys, values", latent.key_value_rank),
        ParameterTensor(
            name="key, value", elements=latent.key_value_rank * heads * key_and_value, heads=heads, is_split=True
        ),
        ParameterTensor(
            name="attention output", elements=heads * latent.value_head_size * hidden, heads=heads, is_split=True
        ),
    )


def _mlp(
    shape: ModelShape, inner: int, *, prefix: str = "", count: int = 1, is_expert: bool = False
) -> tuple[ParameterTensor, ...]:
    """`count` MLPs of `inner` values between."""
    hidden = shape.hidden_size
    into = 2 if shape.gated_mlp else 1
    matrix = hidden * inner
    up = f"{prefix}MLP gate, up" if shape.gated_mlp else f"{prefix}MLP up"
    down = f"{prefix}MLP down"
    found = [
        ParameterTensor(name=up, elements=matrix, count=into * count, is_split=True, is_expert=is_expert),
        ParameterTensor(name=down, elements=matrix, count=count, is_split=True, is_expert=is_expert),
    ]
    if shape.mlp_bias:
        found += [
            ParameterTensor(
                name=f"{up} bias",
                elements=inner,
                count=into * count,
                is_split=True,
                is_expert=is_expert,
                is_matrix=False,
            ),
            ParameterTensor(name=f"{down} bias", elements=hidden, count=count, is_expert=is_expert, is_matrix=False),
        ]
    return tuple(found)


def _experts(shape: ModelShape) -> tuple[ParameterTensor, ...]:
    experts, hidden = shape.experts, shape.hidden_size
    assert experts is not None
    found = [ParameterTensor(name="router", elements=hidden * experts.num_experts)]
    if experts.router_bias:
        found.append(ParameterTensor(name="router bias", elements=experts.num_experts, is_matrix=False))
    found += _mlp(shape, experts.ffn_hidden_size, prefix="expert ", count=experts.num_experts, is_expert=True)
    if experts.shared_ffn_hidden_size:
        found += _mlp(shape, experts.shared_ffn_hidden_size, prefix="shared expert ")
    if experts.shared_gate:
        found.append(ParameterTensor(name="shared expert gate", elements=hidden))
    return tuple(found)


def _vector(name: str, elements: int, *, heads: int, count: int = 1) -> ParameterTensor:
    return ParameterTensor(name=name, elements=elements, heads=heads, count=count, is_split=True, is_matrix=False)
