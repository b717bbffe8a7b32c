"""A pipeline as four numbers, checked: schedule, stages p, micro-batches m, chunks of layers a stage holds v.

A *stage* is what one pipeline rank holds, numbered from 0 as DeepSpeed's `stage_id`. With v > 1 it holds v *chunks* of
layers (virtual stages). A micro-batch passes the p x v chunks of the model in order; where they lie is the placement:

    loop    chunk c of stage s is number c x p + s: every pass goes round all stages
    v       chunk 0 of stage s is number s, chunk 1 is number 2p - 1 - s: there and back again
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Literal

from ds_accum.batch.divisibility import nearest_multiples
from ds_accum.batch.wording import require_integer, show, show_list, show_values
from ds_accum.errors import UsageError

__all__ = ["SCHEDULES", "PipelineShape", "Schedule", "schedule_named"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """What is known of a schedule before its order is made.

    `chunks` is the least and the greatest number of chunks a stage may hold, None for no limit; `torch_name` what
    `torch.distributed.pipelining.schedules.get_schedule_class` (2.13) calls it; `splits_backward` whether the gradient
    of the input and that of the weights are computed apart; `source` where it was published.
    """

    name: str
    title: str
    torch_name: str
    chunks: tuple[int, int | None]
    placement: Literal["loop", "v"]
    splits_backward: bool
    source: str

    @property
    def default_virtual_stages(self) -> int:
        """What a stage holds where nothing is said: an interleaved schedule is one with at least two."""
        return 2 if self.name == "interleaved" else self.chunks[0]


SCHEDULES = MappingProxyType(
    {
        schedule.name: schedule
        for schedule in (
            Schedule(
                name="gpipe",
                title="GPipe",
                torch_name="GPipe",
                chunks=(1, 1),
                placement="loop",
                splits_backward=False,
                source="Huang et al. 2019, arXiv 1811.06965",
            ),
            Schedule(
                name="1f1b",
                title="1F1B",
                torch_name="1F1B",
                chunks=(1, 1),
                placement="loop",
                splits_backward=False,
                source="Narayanan et al. 2021, arXiv 2104.04473, section 2.2.1",
            ),
            Schedule(
                name="interleaved",
                title="Interleaved 1F1B",
                torch_name="Interleaved1F1B",
                chunks=(1, None),
                placement="loop",
                splits_backward=False,
                source="Narayanan et al. 2021, arXiv 2104.04473, section 2.2.2",
            ),
            Schedule(
                name="zero-bubble",
                title="Zero bubble",
                torch_name="InterleavedZeroBubble",
                chunks=(1, None),
                placement="loop",
                splits_backward=True,
                source="Qi et al. 2023, arXiv 2401.10241, ZB-H1",
            ),
            Schedule(
                name="zero-bubble-v",
                title="Zero bubble V",
                torch_name="ZBVZeroBubble",
                chunks=(2, 2),
                placement="v",
                splits_backward=True,
                source="Qi et al. 2023, arXiv 2401.10241, ZB-V",
            ),
            Schedule(
                name="dualpipev",
                title="DualPipeV",
                torch_name="DualPipeV",
                chunks=(2, 2),
                placement="v",
                splits_backward=True,
                source="DeepSeek-AI 2024, arXiv 2412.19437, section 3.2.1, cut in half",
            ),
        )
    }
)


def schedule_named(name: str) -> Schedule:
    """The schedule of this name or, in any case, of torch's name. Raises UsageError with the nearest."""
    wanted = name.strip().lower()
    names = {schedule.torch_name.lower(): schedule for schedule in SCHEDULES.values()} | SCHEDULES
    if wanted in names:
        return names[wanted]
    close = get_close_matches(wanted, names, n=1, cutoff=0.5)
    known = f"there are {show_list(list(SCHEDULES), last=' and ')}"
    raise UsageError(
        f"there is no schedule {name[:40]!r}",
        remedy=f"did you mean {names[close[0]].name}? {known}" if close else known,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineShape:
    """One accumulation window through a pipeline.

    `stages` is the pipeline parallel size, `micro_batches` the gradient accumulation steps, `virtual_stages` the chunks
    a stage holds. Raises UsageError, with the nearest legal values, where a schedule can't run them.
    """

    schedule: str
    stages: int
    micro_batches: int
    virtual_stages: int = 1

    def __post_init__(self) -> None:
        known = schedule_named(self.schedule)
        object.__setattr__(self, "schedule", known.name)
        require_integer(self.stages, name="stages", error=UsageError)
        require_integer(self.micro_batches, name="micro-batches", error=UsageError)
        require_integer(self.virtual_stages, name="virtual stages", error=UsageError)
        self._check_chunks(known)
        self._check_micro_batches()

    @property
    def kind(self) -> Schedule:
        """What is known of the schedule."""
        return SCHEDULES[self.schedule]

    @property
    def num_chunks(self) -> int:
        """The chunks that the model is cut into: stages x virtual stages."""
        return self.stages * self.virtual_stages

    @property
    def num_instructions(self) -> int:
        """Forward and backward passes of chunks on all stages together; a backward in two parts counts twice."""
        return (3 if self.kind.splits_backward else 2) * self.num_chunks * self.micro_batches

    @property
    def needs_groups(self) -> bool:
        """Whether the micro-batches have to be a multiple of the stages."""
        return self.schedule == "interleaved" or (self.schedule == "zero-bubble" and self.virtual_stages > 1)

    def number_of(self, stage: int, chunk: int) -> int:
        """Where in the model a chunk of a stage lies, from 0."""
        if self.kind.placement == "v" and chunk == 1:
            return 2 * self.stages - 1 - stage
        return chunk * self.stages + stage

    def _check_chunks(self, known: Schedule) -> None:
        least, most = known.chunks
        if most is not None and not least <= self.virtual_stages <= most:
            more = "" if most > 1 else "; interleaved and zero-bubble take more"
            raise UsageError(
                f"{known.name} has {least} chunk{'s' if least > 1 else ''} of layers a stage, not"
                f" {show(self.virtual_stages)}",
                remedy=f"set virtual stages to {least}{more}",
            )

    def _check_micro_batches(self) -> None:
        p, m = self.stages, self.micro_batches
        if self.schedule == "dualpipev" and m < 2 * p:
            # torch and DeepSpeed refuse it in the same way.
            raise UsageError(
                f"dualpipev needs 2 x stages {show(p)} = {show(2 * p)} micro-batches at least, not {show(m)}",
                remedy=f"use {show(2 * p)} micro-batches or more",
            )
        if self.needs_groups and m % p:
            raise UsageError(
                f"{self.schedule} sends micro-batches through its chunks in groups of one a stage, and micro-batches"
                f" {show(m)} is not a multiple of stages {show(p)} (remainder {show(m % p)})",
                remedy=f"use {show_values(nearest_multiples(m, p).values)} micro-batches",
            )
