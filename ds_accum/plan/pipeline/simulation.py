"""The timeline of a pipeline: when each stage computes what, and when it waits.

A stage does its instructions in their order, each as soon as the one before is done and what it needs is there:

    forward of chunk g          needs the forward of chunk g - 1, and its transfer if that lies on another stage
    backward (of the input) g   needs that of chunk g + 1, likewise; in the last chunk its own forward
    gradient of the weights g   needs that of the input, which comes before it on the same stage
    two that run together       need what both need, take both times and are both done at the end

    step time   = the last end; every stage waits for it, as the optimizer step waits for the global gradient norm
    bubble      = the sum over stages of step time - computing time
    share       = bubble / (stages x step time);  overhead = bubble / the sum of computing times
    without the wait: the longest time that any stage needs from its first start to its last end takes the place of the
                  step time, which is how zero-bubble schedules are measured (Qi et al. 2023, arXiv 2401.10241)

All in whole ticks, of which the given times are exact multiples.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from ds_accum.batch.wording import show
from ds_accum.errors import UsageError
from ds_accum.plan.pipeline.in_flight import peak_in_flight
from ds_accum.plan.pipeline.orders import Instruction, Part, instruction_order
from ds_accum.plan.pipeline.shape import PipelineShape
from ds_accum.plan.pipeline.times import StageTimes, stage_times

__all__ = ["MAX_INSTRUCTIONS", "PipelineTimeline", "StageTimeline", "simulate_pipeline"]

# A few seconds of work: 64 stages with 1,024 micro-batches and two chunks in the two parts of a backward are 393,216.
MAX_INSTRUCTIONS = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class StageTimeline:
    """One stage: `instructions[i]` runs from `starts[i]` to `ends[i]`, in ticks; `busy` is the sum of what they take.

    `peak_in_flight` counts the chunk passes whose activations are held at once, a micro-batch through one chunk each.
    """

    instructions: tuple[Instruction, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    busy: int
    peak_in_flight: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineTimeline:
    """What was simulated, and when everything happens. `tick` is the length of a tick in the unit of the times."""

    shape: PipelineShape
    times: StageTimes
    tick: Fraction
    stages: tuple[StageTimeline, ...]

    @property
    def step_ticks(self) -> int:
        """The step time in ticks."""
        return max(stage.ends[-1] for stage in self.stages)

    @property
    def step_time(self) -> Fraction:
        """From the first start to the last end, in the unit of the times: the optimizer's update comes on top."""
        return self.step_ticks * self.tick

    @property
    def bubble_share(self) -> Fraction:
        """The part of all stages' time in which they wait, the wait for the slowest at the end included."""
        return 1 - Fraction(self._busy, self.step_ticks * len(self.stages))

    @property
    def bubble_overhead(self) -> Fraction:
        """The time waited per time computed."""
        return Fraction(self.step_ticks * len(self.stages) - self._busy, self._busy)

    @property
    def bubble_share_without_boundary(self) -> Fraction:
        """The share if no stage waited for the others at the accumulation boundary, and the next window moved up."""
        longest = max(stage.ends[-1] - stage.starts[0] for stage in self.stages)
        return 1 - Fraction(self._busy, longest * len(self.stages))

    def idle_share(self, stage: int) -> Fraction:
        """The part of the step in which one stage waits."""
        return 1 - Fraction(self.stages[stage].busy, self.step_ticks)

    def in_flight(self, stage: int) -> Fraction:
        """The most micro-batches whose activations a stage holds at once; one of v chunks counts 1 / v."""
        return Fraction(self.stages[stage].peak_in_flight, self.shape.virtual_stages)

    @property
    def _busy(self) -> int:
        return sum(stage.busy for stage in self.stages)


def simulate_pipeline(shape: PipelineShape, times: StageTimes | None = None) -> PipelineTimeline:
    """The timeline of one accumulation window; without `times` all stages take 1 forward and 2 backward.

    Raises UsageError where the times are of another number of stages, or the pipeline has more than MAX_INSTRUCTIONS.
    """
    times = stage_times(shape.stages) if times is None else times
    if times.stages != shape.stages:
        raise UsageError(
            f"there are times of {times.stages} stages for {show(shape.stages)} stages", remedy="give one for each"
        )
    require_simulable(shape)
    tick, lengths, transfer = _in_ticks(shape, times)
    lanes = [_Lane(instruction_order(shape, stage), length) for stage, length in enumerate(lengths)]
    _run(shape, lanes, transfer)
    return PipelineTimeline(
        shape=shape,
        times=times,
        tick=tick,
        stages=tuple(
            StageTimeline(
                instructions=tuple(lane.order),
                starts=tuple(lane.starts),
                ends=tuple(lane.ends),
                busy=sum(lane.ends) - sum(lane.starts),
                peak_in_flight=peak_in_flight(lane.order),
            )
            for lane in lanes
        ),
    )


def require_simulable(shape: PipelineShape) -> None:
    """Raises UsageError where a simulation would take too long, with what could be simulated."""
    if shape.num_instructions <= MAX_INSTRUCTIONS:
        return
    most = MAX_INSTRUCTIONS // (shape.num_instructions // shape.micro_batches)
    if shape.needs_groups:
        most -= most % shape.stages
    raise UsageError(
        f"a timeline of {show(shape.stages)} stages and {show(shape.micro_batches)} micro-batches has"
        f" {show(shape.num_instructions)} passes, more than the {MAX_INSTRUCTIONS} that are simulated",
        remedy=f"simulate {most} micro-batches or fewer; the bubble of more is smaller"
        if most
        else "simulate fewer stages",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Lengths:
    """What a pass through a chunk of one stage takes, in ticks."""

    forward: int
    backward: int
    backward_input: int
    backward_weight: int

    def of(self, part: Part) -> int:
        if part is Part.FORWARD:
            return self.forward
        if part is Part.BACKWARD:
            return self.backward
        return self.backward_input if part is Part.BACKWARD_INPUT else self.backward_weight


def _in_ticks(shape: PipelineShape, times: StageTimes) -> tuple[Fraction, list[_Lengths], int]:
    """The length of a tick, what the passes of each stage take in ticks, and what a transfer takes."""
    forward = [time / shape.virtual_stages for time in times.forward]
    backward = [time / shape.virtual_stages for time in times.backward]
    share = times.weight_share if shape.kind.splits_backward else Fraction(0)
    weight = [time * share for time in backward]
    per_unit = lcm(times.transfer.denominator, *(time.denominator for time in (*forward, *backward, *weight)))
    lengths = [
        _Lengths(
            forward=int(f * per_unit),
            backward=int(b * per_unit),
            backward_input=int((b - w) * per_unit),
            backward_weight=int(w * per_unit),
        )
        for f, b, w in zip(forward, backward, weight, strict=True)
    ]
    return Fraction(1, per_unit), lengths, int(times.transfer * per_unit)


# Nobody knows yet when it will be there.
_UNKNOWN = -1


class _Lane:
    """One stage while it runs. `forward_ready[chunk][micro_batch]` is when a pass has what it needs."""

    def __init__(self, order: Sequence[Instruction], length: _Lengths) -> None:
        self.order = order
        self.length = length
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.forward_ready: list[list[int]] = []
        self.backward_ready: list[list[int]] = []
        # Per chunk where the result goes: the list of the one who needs it, its stage, and the ticks until it is there.
        self.forward_to: list[tuple[list[int], int, int]] = []
        self.backward_to: list[tuple[list[int], int, int] | None] = []

    def ready(self, instruction: Instruction) -> int:
        if instruction.part is Part.FORWARD:
            return self.forward_ready[instruction.chunk][instruction.micro_batch]
        if instruction.part is Part.BACKWARD_WEIGHT:
            return 0
        return self.backward_ready[instruction.chunk][instruction.micro_batch]

    def run(self) -> set[int]:
        """Goes on until something is missing, or to the end; returns the stages that were given something."""
        order, length, starts, ends = self.order, self.length, self.starts, self.ends
        freed: set[int] = set()
        free = ends[-1] if ends else 0
        for at in range(len(ends), len(order)):
            instruction = order[at]
            part, micro_batch, chunk, with_next = instruction
            ready = self.ready(instruction)
            if ready == _UNKNOWN:
                break
            takes = length.of(part)
            together = takes
            if with_next:
                following = order[at + 1]
                ready_for_following = self.ready(following)
                if ready_for_following == _UNKNOWN:
                    break
                ready = max(ready, ready_for_following)
                together += length.of(following.part)
            start = free if free > ready else ready
            free = start + takes
            starts.append(start)
            ends.append(free)
            if part is Part.BACKWARD_WEIGHT:
                continue
            to = self.forward_to[chunk] if part is Part.FORWARD else self.backward_to[chunk]
            if to is not None:
                there, stage, delay = to
                there[micro_batch] = start + together + delay
                freed.add(stage)
        return freed


def _run(shape: PipelineShape, lanes: Sequence[_Lane], transfer: int) -> None:
    """Runs all stages to their end."""
    _connect(shape, lanes, transfer)
    runnable = deque(range(shape.stages))
    is_queued = [True] * shape.stages
    while runnable:
        stage = runnable.popleft()
        for freed in lanes[stage].run():
            if not is_queued[freed]:
                is_queued[freed] = True
                runnable.append(freed)
        is_queued[stage] = False
    assert all(len(lane.ends) == len(lane.order) for lane in lanes), "an order that waits for itself"


def _connect(shape: PipelineShape, lanes: Sequence[_Lane], transfer: int) -> None:
    """Gives each chunk of each lane what it reads and where its results go."""
    last = shape.num_chunks - 1
    forward_ready = [[_UNKNOWN] * shape.micro_batches for _ in range(last + 1)]
    backward_ready = [[_UNKNOWN] * shape.micro_batches for _ in range(last + 1)]
    forward_ready[0] = [0] * shape.micro_batches
    places = [(stage, chunk) for stage in range(shape.stages) for chunk in range(shape.virtual_stages)]
    stage_of = {shape.number_of(stage, chunk): stage for stage, chunk in places}
    for stage, chunk in places:
        lane, number = lanes[stage], shape.number_of(stage, chunk)
        lane.forward_ready.append(forward_ready[number])
        lane.backward_ready.append(backward_ready[number])
        if number == last:  # its own backward comes next
            lane.forward_to.append((backward_ready[last], stage, 0))
        else:
            there = stage_of[number + 1]
            lane.forward_to.append((forward_ready[number + 1], there, 0 if there == stage else transfer))
        if number == 0:
            lane.backward_to.append(None)
        else:
            there = stage_of[number - 1]
            lane.backward_to.append((backward_ready[number - 1], there, 0 if there == stage else transfer))
