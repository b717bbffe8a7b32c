"""Logits and the loss, on the last stage: the vocabulary in float32, split over tensor-parallel ranks.

n tokens, V vocabulary, t tensor-parallel ranks, h hidden, e bytes; one micro-batch, or all of them in GPipe:

    last norm and input of the output matrix    2 e n h r
    logits in float32                           4 n V/t           Korthikanti et al. 2022, arXiv 2205.05198, section 4.3
    logits in the model's dtype                 e n V/t           float32 is made from them, their gradient goes back
    plain PyTorch                               + 8 n V/t         two gradients beside the logarithms in the backward

Where the embedding serves as the output, the gradient that the output has given waits until the end of the backward for
the one of the embedding: e h V/t.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ds_accum.batch import ParallelLayout
from ds_accum.plan.memory.activations import tokens_per_rank
from ds_accum.plan.memory.line import Line, Moment, make_line
from ds_accum.plan.shape import ModelShape
from ds_accum.plan.training import TrainingSetup

__all__ = ["logit_lines"]

_PAPER = "Korthikanti et al. 2022, arXiv 2205.05198, section 4.3"
_WHEN: tuple[Moment, ...] = ("loss",)


def logit_lines(shape: ModelShape, layout: ParallelLayout, training: TrainingSetup) -> Iterator[Line]:
    """What the last stage keeps behind its last layer."""
    tokens, size, ranks = tokens_per_rank(layout, training), training.element_bytes, layout.tensor_parallel_size
    in_flight = training.gradient_accumulation_steps if _holds_all(layout, training) else 1
    vocabulary = -(-shape.vocabulary_size // ranks)
    hidden = tokens * shape.hidden_size
    hidden = -(-hidden // ranks) if training.megatron_sequence_parallel else hidden
    yield make_line(
        "activations",
        "last norm, and the output's input",
        2 * size * hidden * in_flight,
        "{in_flight} x 2 x {size} B x {hidden}",
        _PAPER,
        moments=_WHEN,
        in_flight=in_flight,
        size=size,
        hidden=hidden,
    )
    numbers: dict[str, Any] = {"in_flight": in_flight, "tokens": tokens, "vocabulary": vocabulary}
    if training.loss_in_fp32 or training.dtype == "fp32":
        yield make_line(
            "logits",
            "logits in float32",
            4 * in_flight * tokens * vocabulary,
            "{in_flight} x 4 B x {tokens} tokens x {vocabulary}",
            _PAPER,
            moments=_WHEN,
            **numbers,
        )
    if training.dtype != "fp32" or not training.fused_kernels:
        yield make_line(
            "logits",
            f"logits in {training.dtype}",
            size * in_flight * tokens * vocabulary,
            "{in_flight} x {size} B x {tokens} tokens x {vocabulary}",
            "the output's result, and its gradient",
            moments=_WHEN,
            size=size,
            **numbers,
        )
    if not training.fused_kernels:
        each = 4 if training.loss_in_fp32 else size
        yield make_line(
            "logits",
            "gradients of the loss",
            2 * each * tokens * vocabulary,
            "2 x {each} B x {tokens} tokens x {vocabulary}",
            "torch.nn.functional.cross_entropy: the gradient of the logarithms, and that of the logits",
            moments=_WHEN,
            each=each,
            tokens=tokens,
            vocabulary=vocabulary,
        )

    if shape.tied_embeddings and layout.pipeline_parallel_size == 1:
        yield make_line(
            "gradients",
            "gradient of the output, waiting for the embedding's",
            size * vocabulary * shape.hidden_size,
            "{size} B x {vocabulary} x {hidden_size}",
            "a gradient is accumulated once all uses of a tensor have given theirs: torch.autograd",
            moments=("backward",),
            size=size,
            vocabulary=vocabulary,
            hidden_size=shape.hidden_size,
        )


def _holds_all(layout: ParallelLayout, training: TrainingSetup) -> bool:
    return layout.pipeline_parallel_size > 1 and training.schedule == "gpipe"
