"""What one run of the exactness matrix is: a stage, a precision, the data, the loop. Plain values, without torch.

The samples of an optimizer step are numbered across ranks, so that the same samples can be cut into micro-batches in
several ways: sample `(micro_batch * ranks + rank) * micro_batch_size + i` is the i-th of that micro-batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from launch import Job

Dtype = Literal["fp32", "bf16", "fp16"]

LENGTH = 16
"""Tokens of a sample; `LONG` of one whose counts jump, or are a thousand times those of another rank."""
LONG = 256
_UNEVEN = (1, 16, 3, 9)
_EMPTY = frozenset({(1, 10), (1, 11), (2, 4), (2, 5)})
"""(window, sample) without a counted token: with two samples per micro-batch, all that one rank has in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One training run. `windows` gives the micro-batches of each accumulation window, per rank.

    `accumulate` is how the loop says where a window ends: DeepSpeed counts ("counted"), `flush()` or
    `set_train_batch_size` where a window differs from the config, `set_gradient_accumulation_boundary` ("declared"),
    `no_sync`, `coalesce_grad_reduction`, or only `step()` ("unmanaged").
    `overflows_in` is the window in which a gradient, but no loss, is not finite.
    `config` is merged into DeepSpeed's config, `block` is the `ds_accum` block.
    """

    name: str
    stage: int
    dtype: Dtype
    engine: Literal["ours", "stock"] = "ours"
    ranks: int = 2
    micro_batch_size: int = 2
    windows: tuple[int, ...] = (4, 4, 4)
    clipping: float = 0.0
    data: Literal["uneven", "even", "jumping", "one-sided", "long", "empty"] = "uneven"
    optimizer: str = "sgd"
    loss: Literal["mean", "sum"] = "mean"
    counts: Literal["given", "labels", "shifted labels", "function"] = "given"
    backward: Literal["engine", "scaled loss", "loss"] = "engine"
    look_ahead: bool = False
    accumulate: Literal["counted", "flush", "resize", "declared", "no_sync", "coalesce", "unmanaged"] = "counted"
    overflows_in: int | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    block: Mapping[str, Any] = field(default_factory=dict)

    @property
    def accumulation(self) -> int:
        """Micro-batches per window that the config says."""
        return self.windows[0]

    @property
    def shift(self) -> bool:
        """Whether the loss drops the first label of each sample."""
        return self.counts == "shifted labels"

    @property
    def length(self) -> int:
        """Tokens of a sample, counted or not."""
        return LONG if self.data in ("jumping", "one-sided", "long") else LENGTH

    def job(self, function: str = "training:run") -> Job:
        """This case as a job of a launch."""
        # A fresh process has to build everything, and a busy machine is slow; only rank 0 works out the truth.
        return Job(
            name=self.name, function=function, arguments=asdict(self), ranks=self.ranks, timeout=90.0, moment=60.0
        )


def case_of(values: Mapping[str, Any]) -> Case:
    """The case of a job's arguments, which JSON has turned tuples into lists of."""
    return Case(**{**values, "windows": tuple(values["windows"])})


def samples_of(case: Case, window: int, micro_batch: int, rank: int) -> range:
    """Numbers of the samples in one micro-batch of one rank."""
    first = (micro_batch * case.ranks + rank) * case.micro_batch_size
    return range(first, first + case.micro_batch_size)


def samples_of_window(case: Case, window: int) -> range:
    """Numbers of all samples in a window, over all ranks."""
    return range(case.windows[window] * case.ranks * case.micro_batch_size)


def valid_length(case: Case, window: int, sample: int) -> int:
    """How many labels of a sample are not ignored, counted from its beginning."""
    if case.data == "even":
        return 8
    if case.data in ("long", "empty"):
        return LONG if case.data == "long" else 0
    if case.data == "one-sided":
        # Of a micro-batch of four samples the last rank counts 1,024 tokens, the others one.
        micro_batch, first = divmod(sample, 4)
        return LONG if micro_batch % case.ranks == case.ranks - 1 else int(first == 0)
    if case.data == "jumping":
        # A window of single tokens, one of a thousand, then both: 1 and 1,024 in micro-batches of four.
        micro_batch, first = divmod(sample, 4)
        short = int(first == 0)
        return (short, LONG, LONG if micro_batch % 3 == 1 else short)[window % 3]
    if (window, sample) in _EMPTY:
        return 0
    pair = sample // 2
    return _UNEVEN[(pair + pair // 2 + window) % 4]
