"""The timeline is the earliest that the order and the dependencies allow, in exact numbers."""

from __future__ import annotations

import time
from fractions import Fraction
from graphlib import TopologicalSorter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds_accum.errors import UsageError
from ds_accum.plan.pipeline import (
    SCHEDULES,
    Part,
    PipelineShape,
    StageTimes,
    instruction_order,
    simulate_pipeline,
    stage_times,
)
from ds_accum.plan.pipeline.simulation import MAX_INSTRUCTIONS
from tests.plan.pipeline.pipelines import equal_times, shapes, times_for

Node = tuple[int, int]


def earliest_ends(shape: PipelineShape, times: StageTimes) -> dict[Node, Fraction]:
    """The same question put as a graph of all instructions, (stage, place in its order): its longest paths."""
    orders = [instruction_order(shape, stage) for stage in range(shape.stages)]
    place = {
        (shape.number_of(stage, one.chunk), one.part in (Part.BACKWARD, Part.BACKWARD_INPUT), one.micro_batch): (
            stage,
            at,
        )
        for stage, order in enumerate(orders)
        for at, one in enumerate(order)
        if one.part is not Part.BACKWARD_WEIGHT
    }

    def inputs(stage: int, at: int) -> list[Node]:
        one = orders[stage][at]
        number = shape.number_of(stage, one.chunk)
        if one.part is Part.BACKWARD_WEIGHT:
            return []
        if one.part is Part.FORWARD:
            return [place[number - 1, False, one.micro_batch]] if number else []
        is_last = number == shape.num_chunks - 1
        return [place[number, False, one.micro_batch] if is_last else place[number + 1, True, one.micro_batch]]

    def length(stage: int, at: int) -> Fraction:
        part = orders[stage][at].part
        backward = times.backward[stage]
        whole = {
            Part.FORWARD: times.forward[stage],
            Part.BACKWARD: backward,
            Part.BACKWARD_INPUT: backward * (1 - times.weight_share),
            Part.BACKWARD_WEIGHT: backward * times.weight_share,
        }[part]
        return whole / shape.virtual_stages

    def group(stage: int, at: int) -> list[int]:
        """The places that start together with this one."""
        if orders[stage][at].with_next:
            return [at, at + 1]
        return [at - 1, at] if at and orders[stage][at - 1].with_next else [at]

    needs: dict[Node, set[Node]] = {}
    for stage, order in enumerate(orders):
        for at in range(len(order)):
            together = group(stage, at)
            needs[stage, at] = {node for member in together for node in inputs(stage, member)}
            if together[0]:
                needs[stage, at].add((stage, together[0] - 1))
    ends: dict[Node, Fraction] = {}
    for stage, at in TopologicalSorter(needs).static_order():
        together = group(stage, at)
        arrivals = [Fraction(0)]
        for there, place_there in needs[stage, at]:
            # What another stage hands over of a joined pair leaves it when both are done.
            last = group(there, place_there)[-1] if there != stage else place_there
            if there == stage and place_there != together[0] - 1:
                last = group(there, place_there)[-1]
            arrivals.append(ends[there, last] + (times.transfer if there != stage else 0))
        ends[stage, at] = max(arrivals) + sum(length(stage, member) for member in together if member <= at)
    return ends


@settings(deadline=None)
@given(shapes(most_stages=5), st.data())
def test_every_end_is_that_of_the_longest_path_through_the_graph(shape: PipelineShape, data: st.DataObject) -> None:
    times = data.draw(times_for(shape.stages))
    timeline = simulate_pipeline(shape, times)
    expected = earliest_ends(shape, times)
    for stage, simulated in enumerate(timeline.stages):
        assert [end * timeline.tick for end in simulated.ends] == [
            expected[stage, at] for at in range(len(simulated.ends))
        ]


@settings(deadline=None)
@given(shapes(), st.data())
def test_a_stage_does_one_thing_at_a_time_and_all_of_its_work(shape: PipelineShape, data: st.DataObject) -> None:
    times = data.draw(times_for(shape.stages))
    timeline = simulate_pipeline(shape, times)
    for number, stage in enumerate(timeline.stages):
        assert stage.instructions == instruction_order(shape, number)
        assert all(end <= start for end, start in zip(stage.ends, stage.starts[1:], strict=False))
        assert stage.busy * timeline.tick == shape.micro_batches * times.per_micro_batch[number]
        assert timeline.idle_share(number) == 1 - stage.busy * timeline.tick / timeline.step_time


@settings(deadline=None)
@given(shapes(), st.data())
def test_bubble_and_computing_make_up_the_time_of_all_stages(shape: PipelineShape, data: st.DataObject) -> None:
    times = data.draw(times_for(shape.stages))
    timeline = simulate_pipeline(shape, times)
    computing = shape.micro_batches * sum(times.per_micro_batch)
    assert timeline.bubble_share == 1 - computing / (shape.stages * timeline.step_time)
    assert timeline.bubble_overhead == timeline.bubble_share / (1 - timeline.bubble_share)
    assert 0 <= timeline.bubble_share_without_boundary <= timeline.bubble_share < 1


@settings(deadline=None)
@given(shapes(), st.data(), st.integers(2, 5))
def test_times_in_another_unit_give_the_same_shares(shape: PipelineShape, data: st.DataObject, unit: int) -> None:
    times = data.draw(times_for(shape.stages))
    other = StageTimes(
        forward=tuple(time / unit for time in times.forward),
        backward=tuple(time / unit for time in times.backward),
        transfer=times.transfer / unit,
        weight_share=times.weight_share,
    )
    one, two = simulate_pipeline(shape, times), simulate_pipeline(shape, other)
    assert one.step_time == unit * two.step_time
    assert one.bubble_share == two.bubble_share


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(1, 12), st.data())
def test_gpipe_takes_one_pass_through_all_and_the_rest_of_the_slowest(
    stages: int, micro_batches: int, data: st.DataObject
) -> None:
    # Forwards and backwards are two rows of machines after each other: sum + (m - 1) max, either.
    times = data.draw(times_for(stages))
    times = StageTimes(forward=times.forward, backward=times.backward)
    shape = PipelineShape(schedule="gpipe", stages=stages, micro_batches=micro_batches)
    expected = sum(sum(row) + (micro_batches - 1) * max(row) for row in (times.forward, times.backward))
    # The first backward waits for the last forward of the last stage, for which all others have done theirs.
    assert simulate_pipeline(shape, times).step_time == expected


@settings(deadline=None)
@given(shapes(), st.data())
def test_no_step_is_shorter_than_a_stage_needs_from_its_first_input_on(
    shape: PipelineShape, data: st.DataObject
) -> None:
    times = data.draw(times_for(shape.stages))
    step_time = simulate_pipeline(shape, times).step_time
    for stage in range(shape.stages):
        before = sum(times.forward[:stage], Fraction(0)) / shape.virtual_stages + stage * times.transfer
        assert step_time >= before + shape.micro_batches * times.per_micro_batch[stage]


@settings(deadline=None)
@given(st.integers(1, 8), st.integers(1, 12), st.integers(0, 30), st.data())
def test_gpipe_with_equal_stages_pays_each_transfer_twice(
    stages: int, micro_batches: int, transfer: int, data: st.DataObject
) -> None:
    times = data.draw(equal_times(stages))
    times = StageTimes(forward=times.forward, backward=times.backward, transfer=Fraction(transfer, 10))
    shape = PipelineShape(schedule="gpipe", stages=stages, micro_batches=micro_batches)
    passes = micro_batches + stages - 1
    expected = passes * times.per_micro_batch[0] + 2 * (stages - 1) * times.transfer
    assert simulate_pipeline(shape, times).step_time == expected


def test_a_stage_that_is_30_percent_slower_makes_all_others_wait() -> None:
    shape = PipelineShape(schedule="1f1b", stages=4, micro_batches=8)
    timeline = simulate_pipeline(shape, stage_times(4, slow={2: 1.3}))
    # Stage 2 computes 8 x 3.9, gets its first input at 2, and its last gradient takes 4 through the stages before it;
    # once it has to wait for the last stage besides.
    assert timeline.step_time == Fraction("39.3") >= 2 + 8 * Fraction("3.9") + 4
    assert timeline.bubble_share == 1 - 8 * Fraction("12.9") / (4 * Fraction("39.3"))
    assert f"{float(timeline.bubble_share):.1%}" == "34.4%"


def test_without_the_boundary_zero_bubble_v_has_no_bubble() -> None:
    shape = PipelineShape(schedule="zero-bubble-v", stages=4, micro_batches=8, virtual_stages=2)
    timeline = simulate_pipeline(shape)
    assert timeline.bubble_share_without_boundary == 0
    assert timeline.bubble_share == Fraction(1, 17)


def test_sixty_four_stages_and_a_thousand_micro_batches_take_seconds() -> None:
    for schedule in (SCHEDULES["1f1b"], SCHEDULES["zero-bubble-v"]):
        shape = PipelineShape(
            schedule=schedule.name, stages=64, micro_batches=1024, virtual_stages=schedule.default_virtual_stages
        )
        start = time.process_time()
        simulate_pipeline(shape)
        assert time.process_time() - start < 8  # about one, where nothing else runs


def test_a_billion_micro_batches_are_refused_with_how_many_are_not() -> None:
    shape = PipelineShape(schedule="interleaved", stages=4, micro_batches=4 * 10**9, virtual_stages=2)
    with pytest.raises(UsageError, match="64000000000 passes") as refused:
        simulate_pipeline(shape)
    assert refused.value.remedy is not None
    assert "62500 micro-batches" in refused.value.remedy
    legal = PipelineShape(schedule="interleaved", stages=4, micro_batches=62500, virtual_stages=2)
    assert legal.num_instructions <= MAX_INSTRUCTIONS


def test_times_of_another_number_of_stages_are_refused() -> None:
    with pytest.raises(UsageError, match="3 stages for 4 stages"):
        simulate_pipeline(PipelineShape(schedule="1f1b", stages=4, micro_batches=8), stage_times(3))
