"""Activations: what the forward of a layer keeps for its backward (Korthikanti et al. 2022, arXiv 2205.05198).

n tokens of a rank = sequence x micro batch / (context x sequence parallel), t tensor-parallel ranks, h hidden, q and k
values of all query and of all key heads, f of the MLP, e bytes; r is 1/t under Megatron's sequence parallelism, else 1:

    norms, inputs of attention and MLP      4 e n h r
    query, key, value, attention's result   e n (2 q + 2 k)/t       keys of grouped heads are kept once
    attention's core                        (2 e + 1) n s heads/t with dropout, e n s heads/t without; with flash
                                            attention 4 n heads/t, the softmax's normalizer (arXiv 2205.14135)
    MLP                                     e n 2 f/t, gated e n 3 f/t
    dropout                                 2 n h r, masks of one byte

In 16 bits, with h = q = k, f = 4 h, dropout and no flash attention this is the paper's equation 1,
s b h (34 + 5 a s/h) (and with t its equations 2 and 4), and "selective" its equation 6, 34 s b h/t: the core is
repeated. "full" keeps a layer's input and repeats the layer.

The backward of a layer has gradients of these tensors beside them, a line of its own that the paper leaves out: of
those between the MLP's matrices, while all of the layer is still there and so is the gradient of the largest matrix; or
of the scores before and after softmax or dropout, 2 e n s heads/t, when the MLP and that matrix are done. The larger
counts.

Plain PyTorch, as in transformers, keeps more (`fused_kernels=False`): an RMSNorm its input in float32 and what it is
scaled to, a gated MLP one f more, and without flash attention softmax a result in float32 and each head a key and a
value of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ds_accum.batch import ParallelLayout
from ds_accum.plan.memory.line import Line, make_line
from ds_accum.plan.memory.stages import Stage
from ds_accum.plan.shape import ModelShape
from ds_accum.plan.training import TrainingSetup

__all__ = ["LayerActivations", "activation_lines", "layer_activations", "tokens_per_rank"]

_PAPER = "Korthikanti et al. 2022, arXiv 2205.05198, section 4"


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerActivations:
    """Bytes that one layer keeps of one micro-batch on one rank, if nothing is repeated."""

    norms: int
    attention: int
    core: int
    """Scores of attention: quadratic in the sequence, or flash attention's normalizer."""

    mlp: int
    dropout: int
    layer_input: int
    """What full recomputation keeps, which is also the first norm's input."""

    @property
    def total(self) -> int:
        """Everything."""
        return self.norms + self.attention + self.core + self.mlp + self.dropout


def tokens_per_rank(layout: ParallelLayout, training: TrainingSetup) -> int:
    """Token positions of a micro-batch that one rank works on."""
    split = layout.context_parallel_size * layout.sequence_parallel_size
    return training.micro_batch_size * -(-training.sequence_length // split)


@lru_cache(maxsize=4096)
def layer_activations(
    shape: ModelShape, layout: ParallelLayout, training: TrainingSetup, *, has_experts: bool
) -> LayerActivations:
    """What one layer keeps."""
    tokens, size, ranks = tokens_per_rank(layout, training), training.element_bytes, layout.tensor_parallel_size
    hidden = size * _sequence_split(tokens * shape.hidden_size, ranks, training)
    # A norm keeps its input and hands its result to the next matrix, which keeps that.
    each_norm = hidden if training.fused_kernels or shape.norm == "layernorm" else hidden * (4 + size) // size
    return LayerActivations(
        norms=2 * (each_norm + hidden),
        attention=_attention(shape, training, tokens, ranks),
        core=_core(shape, training, tokens, ranks),
        mlp=_experts(shape, layout, training, tokens)
        if has_experts
        else _mlp(shape, training, tokens, shape.ffn_hidden_size, ranks),
        dropout=2 * hidden // size if training.dropout else 0,
        layer_input=hidden,
    )


def activation_lines(
    shape: ModelShape,
    layout: ParallelLayout,
    training: TrainingSetup,
    stage: Stage,
    *,
    in_flight: int,
    largest_bytes: int,
) -> Iterator[Line]:
    """The activations of all forwards in flight, and of the layer whose backward runs.

    `largest_bytes` is the size of the largest parameter tensor's gradient.
    """
    kinds = [
        (stage.layers.count(has_experts), layer_activations(shape, layout, training, has_experts=has_experts))
        for has_experts in sorted(set(stage.layers))
    ]
    for name, how, part in _kept_parts(training, has_experts=True in stage.layers, has_mlp=False in stage.layers):
        of_a_forward = sum(layers * getattr(each, part) for layers, each in kinds)
        if of_a_forward:
            yield make_line(
                "activations",
                name,
                -(-of_a_forward * in_flight // training.virtual_stages),
                "{in_flight} in flight x {of_a_forward} B in {layers} layers"
                + (" / {chunks} chunks" if training.virtual_stages > 1 else "")
                + f": {how}",
                _PAPER,
                moments=("loss", "backward"),
                in_flight=in_flight,
                of_a_forward=of_a_forward,
                layers=len(stage.layers),
                chunks=training.virtual_stages,
            )
    repeated = max(_repeated(each, training) for _, each in kinds)
    if repeated:
        yield make_line(
            "activations",
            "what is recomputed of one layer",
            repeated,
            "{repeated} B: all that a layer keeps but its input"
            if training.recompute == "full"
            else "{repeated} B: the core of attention",
            f"{_PAPER} and 5",
            moments=("backward",),
            repeated=repeated,
        )
    going_back = max(_gradients(each, largest_bytes, shape, layout, training) for _, each in kinds)
    yield make_line(
        "activations",
        "gradients inside one layer's backward",
        going_back,
        "{going_back} B: between the matrices of the MLP, or of attention's scores",
        "the sizes of what they are gradients of",
        moments=("backward",),
        going_back=going_back,
    )
    if stage.has_embedding and training.dropout:
        mask = _sequence_split(
            tokens_per_rank(layout, training) * shape.hidden_size, layout.tensor_parallel_size, training
        )
        yield make_line(
            "activations",
            "dropout mask of the embedding",
            mask * -(-in_flight // training.virtual_stages),
            "{in_flight} in flight x {mask} B",
            "Korthikanti et al. 2022, arXiv 2205.05198, section 4.3",
            moments=("loss", "backward"),
            in_flight=-(-in_flight // training.virtual_stages),
            mask=mask,
        )


def _kept_parts(training: TrainingSetup, *, has_experts: bool, has_mlp: bool) -> Iterator[tuple[str, str, str]]:
    """Name, formula and field of LayerActivations, of what is kept; symbols as above."""
    ranks = "/t" if training.megatron_sequence_parallel else ""
    if training.recompute == "full":
        yield "kept: inputs of layers", f"e n h{ranks} each", "layer_input"
        return
    is_plain = not training.fused_kernels
    each_norm = f"2 (e n h + (4 + e) n h){ranks} with RMSNorm, in plain PyTorch" if is_plain else f"4 e n h{ranks} each"
    yield "kept: norms, and inputs of attention and MLP", each_norm, "norms"
    yield "kept: query, key, value, attention's result", "e n (2 q + 2 k)/t each", "attention"
    if training.recompute == "none":
        scores = "4 n heads/t each" if training.flash_attention else f"{_score_bytes(training)} n s heads/t each"
        yield "kept: core of attention", scores, "core"
    inner = "e n f/t for every tensor inside"
    if has_experts:
        said = "router 8 n E, 2 e n h for each expert of a token, " + inner
        name = "kept: MLP and experts" if has_mlp else "kept: experts"
        yield name, said, "mlp"
    else:
        yield "kept: MLP", inner, "mlp"
    if training.dropout:
        yield "kept: masks of dropout", f"2 n h{ranks} each", "dropout"


def _repeated(each: LayerActivations, training: TrainingSetup) -> int:
    """What is there once more while a layer's backward runs."""
    return {"none": 0, "selective": each.core, "full": each.total - each.layer_input}[training.recompute]


def _gradients(
    each: LayerActivations, largest_bytes: int, shape: ModelShape, layout: ParallelLayout, training: TrainingSetup
) -> int:
    """The most that one layer's backward adds to what its forward left and to the largest matrix's gradient."""
    if training.flash_attention:
        return each.mlp
    heads = -(-shape.num_attention_heads // layout.tensor_parallel_size)
    scores = training.element_bytes * tokens_per_rank(layout, training) * training.sequence_length * heads
    gone = each.mlp + each.norms // 2 + each.dropout // 2 + (largest_bytes if training.zero_stage >= 2 else 0)
    return max(each.mlp, 2 * scores - gone)


def _sequence_split(values: int, ranks: int, training: TrainingSetup) -> int:
    """Values that tensor-parallel ranks share only under Megatron's sequence parallelism."""
    return -(-values // ranks) if training.megatron_sequence_parallel else values


def _head_sizes(shape: ModelShape, training: TrainingSetup, ranks: int) -> tuple[int, int, int, int]:
    """Values a token of queries, keys, values and attention's result on one rank."""
    heads = -(-shape.num_attention_heads // ranks)
    latent = shape.latent_attention
    if latent is not None:
        # Keys and values of all heads are made from the latent vectors before attention.
        return (
            heads * latent.query_head_size,
            heads * latent.query_head_size,
            heads * latent.value_head_size,
            heads * latent.value_head_size,
        )
    pairs = -(-shape.num_key_value_heads // ranks) if _is_grouped(training) else heads
    return (heads * shape.head_size, pairs * shape.head_size, pairs * shape.head_size, heads * shape.head_size)


def _is_grouped(training: TrainingSetup) -> bool:
    """Whether the heads of a group share one key and value: in plain PyTorch each head gets a copy."""
    return training.flash_attention or training.fused_kernels


def _attention(shape: ModelShape, training: TrainingSetup, tokens: int, ranks: int) -> int:
    """Queries, keys, values, and the result, which is the output matrix's input; latent vectors and their norms."""
    values = sum(_head_sizes(shape, training, ranks))
    latent = shape.latent_attention
    if latent is not None:
        # Each vector is a norm's input and, normalized, a matrix's.
        values += 2 * (latent.query_rank + latent.key_value_rank) + latent.rope_head_size
    elif shape.query_key_norm:
        query, key, _, _ = _head_sizes(shape, training, ranks)
        values += query + key
    return training.element_bytes * tokens * values


def _core(shape: ModelShape, training: TrainingSetup, tokens: int, ranks: int) -> int:
    heads = -(-shape.num_attention_heads // ranks)
    if training.flash_attention:
        return 4 * tokens * heads
    return _score_bytes(training) * tokens * training.sequence_length * heads


def _score_bytes(training: TrainingSetup) -> int:
    """What is kept of one query with one key, without flash attention."""
    size = training.element_bytes
    if training.fused_kernels:
        # Softmax's result, and with dropout the mask and what is left of it.
        return 2 * size + 1 if training.dropout else size
    # Softmax's result in float32; that in the model's dtype, or what dropout leaves of it; dropout's mask.
    return 4 + (size if size < 4 or training.dropout else 0) + training.dropout


def _mlp(shape: ModelShape, training: TrainingSetup, tokens: int, inner: int, ranks: int) -> int:
    inner_tensors = 2 if not shape.gated_mlp else 3 if training.fused_kernels else 4
    return training.element_bytes * inner_tensors * tokens * -(-inner // ranks)


def _experts(shape: ModelShape, layout: ParallelLayout, training: TrainingSetup, tokens: int) -> int:
    """The router in float32, the tokens as they are sent out, what the experts make of them, and that as sent back.

    k experts a token, in balance: a rank's experts together get as many tokens as it sends, n k times the capacity
    factor if there is one. The ranks that share an expert each see all of its tokens and 1/t of its values.
    """
    experts = shape.experts
    assert experts is not None
    own = _sequence_split(tokens, layout.tensor_parallel_size, training)
    factor = training.expert_capacity_factor or 1
    sent = _ceil(own * experts.experts_per_token * factor) * layout.expert_tensor_parallel_size
    size = training.element_bytes
    router = 2 * 4 * own * experts.num_experts
    dispatched = 2 * size * sent * shape.hidden_size
    inner = _mlp(shape, training, sent, experts.ffn_hidden_size, layout.expert_tensor_parallel_size)
    shared = (
        _mlp(shape, training, tokens, experts.shared_ffn_hidden_size, layout.tensor_parallel_size)
        if experts.shared_ffn_hidden_size
        else 0
    )
    return router + dispatched + inner + shared


def _ceil(value: float) -> int:
    return -int(-value // 1)
