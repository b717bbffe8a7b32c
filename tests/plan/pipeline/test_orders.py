"""The order of instructions on every stage is that of the schedules that run: DeepSpeed's and torch's, as installed."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings

from ds_accum.errors import UsageError
from ds_accum.plan.pipeline import SCHEDULES, Instruction, Part, PipelineShape, instruction_order
from tests.plan.pipeline.pipelines import shapes

STAGES = range(1, 9)
MICRO_BATCHES = range(1, 33)


def orders(schedule: str, stages: int, micro_batches: int, virtual_stages: int = 1) -> list[tuple[Instruction, ...]]:
    shape = PipelineShape(schedule=schedule, stages=stages, micro_batches=micro_batches, virtual_stages=virtual_stages)
    return [instruction_order(shape, stage) for stage in range(stages)]


@settings(deadline=None)
@given(shapes())
def test_every_micro_batch_passes_every_chunk_forward_and_then_backward_once(shape: PipelineShape) -> None:
    passes = {(chunk, at) for chunk in range(shape.virtual_stages) for at in range(shape.micro_batches)}
    for stage in range(shape.stages):
        order = instruction_order(shape, stage)
        seen: dict[tuple[int, int], list[Part]] = {}
        for instruction in order:
            seen.setdefault((instruction.chunk, instruction.micro_batch), []).append(instruction.part)
        assert set(seen) == passes
        whole, parts = [Part.FORWARD, Part.BACKWARD], [Part.FORWARD, Part.BACKWARD_INPUT, Part.BACKWARD_WEIGHT]
        assert all(done in ((whole, parts) if shape.kind.splits_backward else (whole,)) for done in seen.values())


@settings(deadline=None)
@given(shapes())
def test_each_chunk_takes_the_micro_batches_in_turn(shape: PipelineShape) -> None:
    for stage in range(shape.stages):
        turns: Counter[tuple[Part, int]] = Counter()
        for part, micro_batch, chunk, _ in instruction_order(shape, stage):
            kind = Part.BACKWARD if part is Part.BACKWARD_INPUT else part
            if part is Part.BACKWARD_WEIGHT:
                continue
            assert micro_batch == turns[kind, chunk]
            turns[kind, chunk] += 1


@settings(deadline=None)
@given(shapes())
def test_only_a_forward_is_joined_and_a_backward_follows_it(shape: PipelineShape) -> None:
    for stage in range(shape.stages):
        order = instruction_order(shape, stage)
        joined = [at for at, instruction in enumerate(order) if instruction.with_next]
        assert all(order[at].part is Part.FORWARD and order[at + 1].part is Part.BACKWARD for at in joined)
        assert not joined or shape.schedule == "dualpipev"


def test_1f1b_of_four_stages_and_four_micro_batches_is_the_textbook_figure() -> None:
    def said(order: tuple[Instruction, ...]) -> str:
        return " ".join(f"{'F' if one.part is Part.FORWARD else 'B'}{one.micro_batch}" for one in order)

    assert [said(order) for order in orders("1f1b", 4, 4)] == [
        "F0 F1 F2 F3 B0 B1 B2 B3",
        "F0 F1 F2 B0 F3 B1 B2 B3",
        "F0 F1 B0 F2 B1 F3 B2 B3",
        "F0 B0 F1 B1 F2 B2 F3 B3",
    ]


def test_zero_bubble_with_no_weights_to_compute_later_is_interleaved_with_half_the_warmup() -> None:
    without_weights = [
        [one for one in order if one.part is not Part.BACKWARD_WEIGHT] for order in orders("zero-bubble", 4, 8)
    ]
    whole = [
        [one._replace(part=Part.BACKWARD) if one.part is Part.BACKWARD_INPUT else one for one in order]
        for order in without_weights
    ]
    assert whole == [list(order) for order in orders("1f1b", 4, 8)]


@pytest.mark.parametrize("stage", [-1, 4, True, 1.0])
def test_a_stage_that_does_not_exist_is_refused(stage: Any) -> None:
    with pytest.raises(UsageError, match="stage"):
        instruction_order(PipelineShape(schedule="1f1b", stages=4, micro_batches=8), stage)


# ----------------------------------------------------------------------------------------------------------- DeepSpeed


def deepspeed_order(schedule: Any) -> list[Instruction]:
    """What a PipeSchedule of DeepSpeed computes, micro-batches by the buffers that it names."""
    from deepspeed.runtime.pipe.schedule import BackwardPass, ForwardPass

    buffers = schedule.num_pipe_buffers()
    turns: Counter[Part] = Counter()
    order = []
    for step in schedule.steps():
        for command in step:
            part = {ForwardPass: Part.FORWARD, BackwardPass: Part.BACKWARD}.get(type(command))
            if part is not None:
                assert command.buffer_id == turns[part] % buffers
                order.append(Instruction(part, turns[part]))
                turns[part] += 1
    return order


@pytest.mark.engine
@pytest.mark.parametrize("stages", STAGES)
def test_1f1b_is_the_order_of_deepspeed(stages: int) -> None:
    from deepspeed.runtime.pipe.schedule import TrainSchedule

    for micro_batches in MICRO_BATCHES:
        theirs = [
            deepspeed_order(TrainSchedule(micro_batches=micro_batches, stages=stages, stage_id=stage))
            for stage in range(stages)
        ]
        assert theirs == [list(order) for order in orders("1f1b", stages, micro_batches)]


@pytest.mark.engine
@pytest.mark.parametrize("stages", STAGES)
def test_dualpipev_is_the_order_of_deepspeed_which_never_splits_a_backward(stages: int) -> None:
    deepspeed_schedules = pytest.importorskip("deepspeed.runtime.pipe.schedule")
    if not hasattr(deepspeed_schedules, "DualPipeVSchedule"):
        pytest.skip("this DeepSpeed has no DualPipeV")
    for micro_batches in range(2 * stages, 33):
        for stage, order in enumerate(orders("dualpipev", stages, micro_batches, 2)):
            whole = [
                Instruction(Part.BACKWARD if one.part is Part.BACKWARD_INPUT else one.part, one.micro_batch, one.chunk)
                for one in order
                if one.part is not Part.BACKWARD_WEIGHT
            ]
            schedule = deepspeed_schedules.DualPipeVSchedule(micro_batches, stages, stage)
            assert deepspeed_two_phase_order(schedule, micro_batches) == whole


def deepspeed_two_phase_order(schedule: Any, micro_batches: int) -> list[Instruction]:
    """As above, where a buffer is phase x micro-batches + micro-batch."""
    from deepspeed.runtime.pipe.schedule import BackwardPass, ForwardPass

    parts = {ForwardPass: Part.FORWARD, BackwardPass: Part.BACKWARD}
    return [
        Instruction(parts[type(command)], command.buffer_id % micro_batches, command.buffer_id // micro_batches)
        for step in schedule.steps()
        for command in step
        if type(command) in parts
    ]


# --------------------------------------------------------------------------------------------------------------- torch


class RecordingStage:
    """A stage for torch's schedules that computes nothing and notes what it is asked for."""

    has_backward = True

    def __init__(self, rank: int, stages: int, virtual_stages: int) -> None:
        self.stage_index = self.group_rank = rank
        self.group_size = stages
        self.num_stages = stages * virtual_stages
        self.is_first = rank == 0
        self.is_last = rank == self.num_stages - 1
        self.submod = None
        self.order: list[Instruction] = []

    def forward_one_chunk(self, micro_batch: int, *_: Any, **__: Any) -> None:
        self.order.append(Instruction(Part.FORWARD, micro_batch))

    def backward_one_chunk(self, micro_batch: int, **_: Any) -> None:
        self.order.append(Instruction(Part.BACKWARD, micro_batch))

    def get_fwd_recv_ops(self, _: int) -> list[Any]:
        return []

    get_fwd_send_ops = get_bwd_recv_ops = get_bwd_send_ops = get_fwd_recv_ops

    def perform_reduce_grad(self, _: int) -> None:
        pass


def torch_class(name: str) -> Any:
    from torch.distributed.pipelining import schedules

    if not hasattr(schedules, name):
        pytest.skip(f"this torch has no {name}")
    return getattr(schedules, name)


@pytest.mark.engine
@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize(("schedule", "name"), [("gpipe", "ScheduleGPipe"), ("1f1b", "Schedule1F1B")])
def test_what_torch_runs_of_one_chunk_a_stage_is_the_order(
    schedule: str, name: str, stages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its list of actions for 1F1B is one micro-batch off on the last stage; what it runs is not.
    theirs = torch_class(name)
    monkeypatch.setattr(theirs, "_initialize_stage", lambda *_: None)
    for micro_batches in MICRO_BATCHES:
        if schedule == "1f1b" and micro_batches < stages:
            continue  # torch refuses; DeepSpeed runs it
        for rank, order in enumerate(orders(schedule, stages, micro_batches)):
            stage = RecordingStage(rank, stages, 1)
            theirs(stage, micro_batches)._step_microbatches([()] * micro_batches, [{}] * micro_batches)
            assert stage.order == list(order)


def torch_orders(name: str, stages: int, micro_batches: int, virtual_stages: int) -> list[list[Instruction]]:
    local = [RecordingStage(0, stages, virtual_stages) for _ in range(virtual_stages)]
    schedule = torch_class(name)(local, micro_batches)
    return [
        [instruction for action in schedule.pipeline_order[rank] if action for instruction in read(action, stages)]
        for rank in range(stages)
    ]


def read(action: Any, stages: int) -> list[Instruction]:
    """One of torch's actions: a joined one holds two."""
    if action.sub_actions:
        forward, backward = (read(one, stages)[0] for one in action.sub_actions)
        return [forward._replace(with_next=True), backward]
    name = action.computation_type.name
    part = Part.BACKWARD if name == "FULL_BACKWARD" else Part[name]
    return [Instruction(part, action.microbatch_index, action.stage_index // stages)]


@pytest.mark.engine
@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("virtual_stages", [1, 2, 3])
@pytest.mark.parametrize(
    ("schedule", "name"),
    [("interleaved", "ScheduleInterleaved1F1B"), ("zero-bubble", "ScheduleInterleavedZeroBubble")],
)
def test_several_chunks_in_a_loop_are_in_the_order_of_torch(
    schedule: str, name: str, virtual_stages: int, stages: int
) -> None:
    for micro_batches in MICRO_BATCHES:
        if micro_batches % stages:
            continue
        ours = [list(order) for order in orders(schedule, stages, micro_batches, virtual_stages)]
        assert torch_orders(name, stages, micro_batches, virtual_stages) == ours


@pytest.mark.engine
@pytest.mark.parametrize("stages", STAGES)
def test_zero_bubble_of_one_chunk_a_stage_is_the_order_of_torch_for_what_torch_takes(stages: int) -> None:
    for micro_batches in MICRO_BATCHES:
        if micro_batches % max(1, micro_batches // stages):
            continue
        ours = [list(order) for order in orders("zero-bubble", stages, micro_batches)]
        assert torch_orders("ScheduleInterleavedZeroBubble", stages, micro_batches, 1) == ours


@pytest.mark.engine
@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize(
    ("schedule", "name"), [("zero-bubble-v", "ScheduleZBVZeroBubble"), ("dualpipev", "ScheduleDualPipeV")]
)
def test_two_chunks_in_a_v_are_in_the_order_of_torch(schedule: str, name: str, stages: int) -> None:
    for micro_batches in MICRO_BATCHES:
        if schedule == "dualpipev" and micro_batches < 2 * stages:
            continue
        ours = [list(order) for order in orders(schedule, stages, micro_batches, 2)]
        assert torch_orders(name, stages, micro_batches, 2) == ours


@pytest.mark.engine
def test_every_schedule_is_known_to_torch_by_its_other_name() -> None:
    from torch.distributed.pipelining.schedules import get_schedule_class

    names = {schedule.torch_name: get_schedule_class(schedule.torch_name).__name__ for schedule in SCHEDULES.values()}
    assert len(set(names.values())) == len(SCHEDULES)


def test_the_comparison_sees_two_instructions_that_change_places() -> None:
    order = list(orders("1f1b", 4, 8)[1])
    order[3], order[4] = order[4], order[3]
    assert order != list(orders("1f1b", 4, 8)[1])
    action = SimpleNamespace(computation_type=Part.FORWARD, microbatch_index=5, stage_index=9, sub_actions=None)
    assert read(action, 4) == [Instruction(Part.FORWARD, 5, 2)]
