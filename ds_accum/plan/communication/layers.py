"""What the layers of a model exchange in every micro-batch: tensor, sequence, context, expert and pipeline parallel.

T token positions of one micro-batch on one rank = micro batch x sequence length / (context x sequence parallel); h the
hidden size, e bytes a value; L layers of the rank. F forwards a micro-batch: 2 with full recompute, which runs each
layer's forward again, else 1. All of it times A micro-batches:

    tensor        L x (2 F + 2) all-reduces of T h e              Shoeybi et al. 2019, arXiv 1909.08053, section 3
      "sequence"  each of them is a reduce-scatter and an         Korthikanti et al. 2022, arXiv 2205.05198, section 4.2
                  all-gather, and the backward gathers twice more
    sequence      L x (F + 1) x 4 all-to-alls: Q, K, V, output    Jacobs et al. 2023, arXiv 2309.14509, section 3
    context       L x F x (C - 1) sends of K and V, the same      Liu et al. 2023, arXiv 2310.01889, section 3
                  in the backward, and C sends of their float32
                  gradients
    expert        L x (2 F + 2) all-to-alls of T k h e            DeepSpeed 0.19.8, moe/sharded_moe.py:104
    pipeline      a send of T h e per boundary, forward and       Narayanan et al. 2021, arXiv 2104.04473, sections
                  back; v times as many with v chunks a stage     2.2 and 3.2
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.plan.communication.transfer import Kind, Transfer

__all__ = [
    "context_parallel_transfers",
    "expert_parallel_transfers",
    "pipeline_parallel_transfers",
    "sequence_parallel_transfers",
    "tensor_parallel_transfers",
]

_SHOEYBI = "Shoeybi et al. 2019, arXiv 1909.08053, section 3"
_KORTHIKANTI = "Korthikanti et al. 2022, arXiv 2205.05198, section 4.2"
_JACOBS = "Jacobs et al. 2023, arXiv 2309.14509, section 3"
_LIU = "Liu et al. 2023, arXiv 2310.01889, section 3"
_DEEPSPEED_MOE = "DeepSpeed 0.19.8, moe/sharded_moe.py:104 (MOELayer dispatches and combines)"
_NARAYANAN = "Narayanan et al. 2021, arXiv 2104.04473, sections 2.2 and 3.2"

# Ring attention adds up the gradients of K and V in float32 as they go round.
_SUM_BYTES = 4


def tensor_parallel_transfers(
    *,
    ranks: int,
    num_layers: int,
    tokens: int,
    hidden_size: int,
    value_bytes: int,
    gradient_accumulation_steps: int,
    forwards: int = 1,
    megatron_sequence_parallel: bool = False,
    is_first_stage: bool = False,
    is_last_stage: bool = False,
) -> tuple[Transfer, ...]:
    """Each layer ends attention and MLP with an all-reduce, in the forward and in the backward.

    The first pipeline stage has one more for the word embedding, the last one for the gradient of the output's input,
    and the cross entropy over a split vocabulary has three of one float32 a token (section 3 of the first source).
    With `megatron_sequence_parallel` every all-reduce is a reduce-scatter and an all-gather of the same tensor; each
    layer gathers its two inputs once more in the backward rather than keep them.
    """
    if ranks == 1:
        return ()
    ends = int(is_first_stage) + int(is_last_stage)
    reductions = num_layers * (2 * forwards + 2) + ends
    whole = tokens * hidden_size * value_bytes
    formula = f"A x (L x {2 * forwards + 2}{f' + {ends}' if ends else ''}) x T h e"

    def transfer(name: str, kind: Kind, times: int, size: int, said: str, source: str) -> Transfer:
        return Transfer(
            name=name,
            kind=kind,
            group="tensor",
            ranks=ranks,
            times=gradient_accumulation_steps * times,
            bytes_each=size,
            formula=said,
            source=source,
        )

    def all_transfers() -> Iterator[Transfer]:
        if not megatron_sequence_parallel:
            yield transfer("layers", "all-reduce", reductions, whole, formula, _SHOEYBI)
        else:
            gathers = reductions + 2 * num_layers
            said = f"A x (L x {2 * forwards + 4}{f' + {ends}' if ends else ''}) x T h e / {ranks}"
            yield transfer("layers", "reduce-scatter", reductions, whole, formula, _KORTHIKANTI)
            yield transfer("layers", "all-gather", gathers, -(-whole // ranks), said, _KORTHIKANTI)
        if is_last_stage:
            yield transfer("cross entropy", "all-reduce", 3, tokens * _SUM_BYTES, "3 A x T x 4", _SHOEYBI)

    return tuple(all_transfers())


def sequence_parallel_transfers(
    *,
    ranks: int,
    num_layers: int,
    tokens: int,
    values_per_token: int,
    value_bytes: int,
    gradient_accumulation_steps: int,
    forwards: int = 1,
) -> tuple[Transfer, ...]:
    """Ulysses: each layer swaps a split of the sequence for one of the heads before attention, and back after it.

    `values_per_token` are those of queries, keys, values and output of one layer together, on one tensor-parallel rank.
    """
    if ranks == 1:
        return ()
    return (
        Transfer(
            name="attention",
            kind="all-to-all",
            group="sequence",
            ranks=ranks,
            times=gradient_accumulation_steps * num_layers * (forwards + 1),
            bytes_each=tokens * values_per_token * value_bytes,
            formula=f"A x L x {forwards + 1} x T (Q + K + V + output) e",
            source=_JACOBS,
        ),
    )


def context_parallel_transfers(
    *,
    ranks: int,
    num_layers: int,
    tokens: int,
    values_per_token: int,
    value_bytes: int,
    gradient_accumulation_steps: int,
    forwards: int = 1,
) -> tuple[Transfer, ...]:
    """Ring attention: keys and values pass every rank, forward and backward; their gradients go the whole way round.

    `values_per_token` are those of keys and values of one layer together, on one tensor-parallel rank. The blocks that
    a causal mask leaves out travel all the same.
    """
    if ranks == 1:
        return ()

    def transfer(name: str, times: int, size: int, formula: str) -> Transfer:
        return Transfer(
            name=name,
            kind="point-to-point",
            group="context",
            ranks=ranks,
            times=gradient_accumulation_steps * num_layers * times,
            bytes_each=tokens * values_per_token * size,
            formula=formula,
            source=_LIU,
        )

    hops = ranks - 1
    return (
        transfer(
            "keys and values", (forwards + 1) * hops, value_bytes, f"A x L x {forwards + 1} x {hops} x T (K + V) e"
        ),
        transfer("their gradients", ranks, _SUM_BYTES, f"A x L x {ranks} x T (K + V) x 4"),
    )


def expert_parallel_transfers(
    *,
    ranks: int,
    num_layers: int,
    tokens: int,
    experts_per_token: int,
    hidden_size: int,
    value_bytes: int,
    gradient_accumulation_steps: int,
    forwards: int = 1,
) -> tuple[Transfer, ...]:
    """Each expert layer sends its tokens to their experts and back, in the forward and in the backward.

    Every token goes to `experts_per_token`, evenly over the experts, and nothing is padded to a capacity: with a
    capacity factor c multiply by c.
    """
    if ranks == 1 or num_layers == 0:
        return ()
    return (
        Transfer(
            name="tokens to experts",
            kind="all-to-all",
            group="expert",
            ranks=ranks,
            times=gradient_accumulation_steps * num_layers * (2 * forwards + 2),
            bytes_each=tokens * experts_per_token * hidden_size * value_bytes,
            formula=f"A x L x {2 * forwards + 2} x T k h e",
            source=_DEEPSPEED_MOE,
        ),
    )


def pipeline_parallel_transfers(
    *,
    stages: int,
    stage: int,
    tokens: int,
    hidden_size: int,
    value_bytes: int,
    gradient_accumulation_steps: int,
    virtual_stages: int = 1,
    split: int = 1,
) -> tuple[Transfer, ...]:
    """What stage `stage`, from 0, sends: activations to the next chunk of layers, their gradients to the one before.

    Only the very last chunk sends no activations and the very first no gradients. `split` ranks send a part each, where
    tensor-parallel ranks hold one each (section 4.1 of the source, or Megatron's sequence parallel).
    """
    if stages == 1:
        return ()
    size = -(-tokens * hidden_size // split) * value_bytes
    said = "T h e" if split == 1 else f"T h e / {split}"

    def transfer(name: str, boundaries: int) -> Transfer:
        return Transfer(
            name=name,
            kind="point-to-point",
            group="pipeline",
            ranks=stages,
            times=gradient_accumulation_steps * boundaries,
            bytes_each=size,
            formula=f"A x {said}" if boundaries == 1 else f"A x {boundaries} x {said}",
            source=_NARAYANAN,
        )

    activations = virtual_stages - int(stage == stages - 1)
    gradients = virtual_stages - int(stage == 0)
    sent = [("activations", activations), ("activation gradients", gradients)]
    return tuple(transfer(name, boundaries) for name, boundaries in sent if boundaries)
