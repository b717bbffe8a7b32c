"""The time of a step: against published runs, against the transfers one by one, and in its identities."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds_accum.batch import ParallelLayout
from ds_accum.errors import UsageError
from ds_accum.plan.communication import step_communication
from ds_accum.plan.cost import PARTS, CostAssumptions, StepTime, paces_of, step_time
from ds_accum.plan.hardware import read_hardware
from ds_accum.plan.links import call_seconds
from ds_accum.plan.pipeline import bubble_share
from ds_accum.plan.shape import ModelShape
from ds_accum.plan.training import TrainingSetup
from tests.plan.shapes_for_tests import SMALL, SMALL_WITH_EXPERTS, gpt

A100 = read_hardware("A100-80GB")
EXACT = CostAssumptions()


def setup(**changes: object) -> TrainingSetup:
    given_: dict[str, object] = {
        "zero_stage": 1,
        "micro_batch_size": 1,
        "gradient_accumulation_steps": 1,
        "sequence_length": 2048,
    }
    return TrainingSetup(**{**given_, **changes})  # type: ignore[arg-type]


def time_of(
    shape: ModelShape,
    layout: ParallelLayout,
    training: TrainingSetup,
    *,
    micro_batch_size: int,
    gradient_accumulation_steps: int,
    assumptions: CostAssumptions = EXACT,
) -> StepTime:
    return step_time(
        paces_of(shape, layout, training, A100, assumptions),
        micro_batch_size=micro_batch_size,
        gradient_accumulation_steps=gradient_accumulation_steps,
    )


# --- published runs ---------------------------------------------------------------------------------------------------


def tera_flops(shape: ModelShape, layout: ParallelLayout, stage: int, micro_batch: int, batch: int) -> float:
    """Teraflops a second and GPU as the paper counts them: with the forward that recompute repeats."""
    step = time_of(
        shape,
        layout,
        setup(zero_stage=stage, dtype="fp16", recompute="full", flash_attention=False),
        micro_batch_size=micro_batch,
        gradient_accumulation_steps=batch // (layout.data_parallel_size * micro_batch),
    )
    operations = shape.flops_per_token(2048) * 4 / 3 * 2048 * batch
    return operations / layout.world_size / step.step_seconds / 1e12


# Narayanan et al. 2021, arXiv 2104.04473, Table 1: heads, hidden size, layers, tensor, pipeline, GPUs, batch, teraFLOP/s
# per GPU. The micro-batch, which the table does not give, is the best of 1 to 16 here, as it was there.
TABLE_1 = [
    (24, 2304, 24, 1, 1, 32, 512, 137),
    (32, 3072, 30, 2, 1, 64, 512, 138),
    (32, 4096, 36, 4, 1, 128, 512, 142),
    (48, 6144, 40, 8, 1, 256, 1024, 135),
    (64, 8192, 48, 8, 2, 512, 1536, 138),
    (80, 10240, 60, 8, 4, 1024, 1792, 140),
    (96, 12288, 80, 8, 8, 1536, 2304, 148),
    (128, 16384, 96, 8, 16, 1920, 2160, 155),
    (128, 20480, 105, 8, 35, 2520, 2520, 163),
    (160, 25600, 128, 8, 64, 3072, 3072, 163),
]


@pytest.mark.parametrize("row", TABLE_1, ids=lambda row: f"{row[2]}x{row[1]}")
def test_published_throughputs_of_tensor_and_pipeline_parallel_are_met_within_a_tenth(row: tuple[int, ...]) -> None:
    heads, hidden, layers, tensor, pipeline, gpus, batch, published = row
    layout = ParallelLayout(world_size=gpus, tensor_parallel_size=tensor, pipeline_parallel_size=pipeline)
    of_rank = batch // layout.data_parallel_size
    shape = gpt(heads=heads, hidden_size=hidden, num_layers=layers)
    reckoned = max(tera_flops(shape, layout, 0, size, batch) for size in (1, 2, 4, 8, 16) if of_rank % size == 0)
    assert reckoned == pytest.approx(published, rel=0.1)


# Table 2, ZeRO-3 without model parallelism: heads, hidden size, layers, GPUs, batch, micro-batch, teraFLOP/s per GPU.
TABLE_2 = [
    (96, 12288, 96, 384, 1536, 4, 144),
    (96, 12288, 96, 768, 1536, 2, 88),
    (96, 12288, 96, 1536, 1536, 1, 44),
    (128, 20480, 105, 640, 2560, 4, 138),
    (128, 20480, 105, 1120, 2240, 2, 98),
    (128, 20480, 105, 2240, 2240, 1, 48),
]


@pytest.mark.parametrize("row", TABLE_2, ids=lambda row: f"{row[2]}x{row[1]}-{row[3]}")
def test_published_throughputs_of_zero_3_are_met_within_a_quarter(row: tuple[int, ...]) -> None:
    heads, hidden, layers, gpus, batch, micro_batch, published = row
    shape = gpt(heads=heads, hidden_size=hidden, num_layers=layers)
    reckoned = tera_flops(shape, ParallelLayout(world_size=gpus), 3, micro_batch, batch)
    assert reckoned == pytest.approx(published, rel=0.25)


# --- identities -------------------------------------------------------------------------------------------------------

LAYOUTS = st.sampled_from(
    [
        (SMALL, ParallelLayout(world_size=8)),
        (SMALL, ParallelLayout(world_size=32, tensor_parallel_size=4, pipeline_parallel_size=2)),
        (SMALL, ParallelLayout(world_size=32, tensor_parallel_size=2, context_parallel_size=4)),
        (SMALL, ParallelLayout(world_size=16, sequence_parallel_size=4)),
        (SMALL_WITH_EXPERTS, ParallelLayout(world_size=24, pipeline_parallel_size=3, expert_parallel_size=4)),
    ]
)
SIZES = st.integers(1, 64)


@settings(max_examples=60, deadline=None)
@given(chosen=LAYOUTS, micro_batch=SIZES, accumulation=SIZES, recompute=st.sampled_from(["none", "selective", "full"]))
def test_the_parts_add_up_and_the_bubble_is_the_formulas_share(
    chosen: tuple[ModelShape, ParallelLayout], micro_batch: int, accumulation: int, recompute: str
) -> None:
    shape, layout = chosen
    step = time_of(
        shape,
        layout,
        setup(recompute=recompute, flash_attention=False),
        micro_batch_size=micro_batch,
        gradient_accumulation_steps=accumulation,
    )
    parts = [step.part_seconds(part) for part in PARTS]
    assert all(seconds >= 0 for seconds in parts)
    assert step.step_seconds == pytest.approx(sum(parts))
    # What every micro-batch costs waits for the pipeline; what comes once a step does not. Stage 1 exchanges once.
    in_pipeline = step.step_seconds - step.update_seconds - step.data_parallel_seconds
    share = float(bubble_share(layout.pipeline_parallel_size, accumulation))
    assert step.bubble_seconds == pytest.approx(share * in_pipeline)


@settings(max_examples=40, deadline=None)
@given(chosen=LAYOUTS, stage=st.sampled_from([1, 2, 3]), micro_batch=st.integers(1, 9), accumulation=st.integers(1, 9))
def test_the_pace_of_one_sample_gives_every_micro_batch(
    chosen: tuple[ModelShape, ParallelLayout], stage: int, micro_batch: int, accumulation: int
) -> None:
    """Timing the real transfers of a step one by one gives what the pace gives, which never sees them."""
    shape, layout = chosen
    if layout.pipeline_parallel_size > 1:
        stage = 1
    training = setup(zero_stage=stage, grad_accum_dtype="fp32", communication_dtype="fp32", overlap_comm=False)
    # Nothing hides, so that every transfer counts in full.
    assumptions = replace(EXACT, overlapped_share=1e-12)
    step = time_of(
        shape,
        layout,
        training,
        micro_batch_size=micro_batch,
        gradient_accumulation_steps=accumulation,
        assumptions=assumptions,
    )
    sized = replace(training, micro_batch_size=micro_batch, gradient_accumulation_steps=accumulation)
    transfers = step_communication(shape, layout, sized, pipeline_stage=step.pipeline_stage).transfers

    def seconds_of(*groups: str) -> float:
        total = 0.0
        for transfer in transfers:
            if transfer.group in groups and transfer.name != "tied embedding gradients":
                moving, waiting = call_seconds(
                    transfer.kind,
                    transfer.group,
                    ranks=transfer.ranks,
                    input_bytes=transfer.bytes_each,
                    layout=layout,
                    hardware=A100,
                    share_of_peak=assumptions.link_share_of_peak,
                )
                total += transfer.times * (moving + waiting)
        return total

    # A transfer's bytes are whole numbers, rounded up: a few of millions.
    close = {"rel": 1e-4, "abs": 1e-9}
    assert step.tensor_parallel_seconds == pytest.approx(seconds_of("tensor"), **close)
    assert step.sequence_parallel_seconds == pytest.approx(seconds_of("sequence", "context"), **close)
    assert step.expert_parallel_seconds == pytest.approx(seconds_of("expert"), **close)
    assert step.pipeline_transfers_seconds == pytest.approx(seconds_of("pipeline"), **close)
    # Without the pieces that software cuts them in, which only add waiting.
    assert step.data_parallel_seconds >= seconds_of("data", "expert data") * (1 - 1e-4)


def test_full_recompute_adds_a_third_of_the_layers_arithmetic() -> None:
    quick = replace(EXACT, memory_share_of_peak=1.0)
    vast = replace(A100, memory_bytes_per_second=1e23)  # so that arithmetic alone counts
    (pace,) = paces_of(SMALL, ParallelLayout(world_size=1), setup(recompute="full"), vast, quick)
    output = 6 * SMALL.hidden_size * SMALL.vocabulary_size
    layers = (SMALL.flops_per_token(2048) - output) * 2048
    speed = 312e12 * quick.compute_share_of_peak
    assert pace.compute[1] == pytest.approx((layers + output * 2048) / speed)
    assert pace.recompute[1] == pytest.approx(layers / 3 / speed)


def test_what_hides_behind_arithmetic_is_no_more_than_there_is_of_it() -> None:
    layout, training = ParallelLayout(world_size=64), setup(zero_stage=3)
    (pace,) = paces_of(gpt(heads=32, hidden_size=4096, num_layers=36), layout, training, A100, EXACT)
    small, large = (pace.step(micro_batch_size=size, gradient_accumulation_steps=1) for size in (1, 64))
    exposed = 1 - EXACT.overlapped_share
    assert large.data_parallel_seconds == pytest.approx(pace.data_parallel_each * exposed)
    assert small.data_parallel_seconds == pytest.approx(pace.data_parallel_each - small.compute_seconds)


@pytest.mark.parametrize(("stage", "part"), [(2, 2 / 3), (3, 1.0)])
def test_zero_hides_behind_what_ring_attention_leaves_of_the_arithmetic(stage: int, part: float) -> None:
    layout = ParallelLayout(world_size=64, context_parallel_size=4)
    training = setup(zero_stage=stage, overlap_comm=True)
    (pace,) = paces_of(gpt(heads=32, hidden_size=4096, num_layers=36), layout, training, A100, EXACT)
    step = pace.step(micro_batch_size=1, gradient_accumulation_steps=1)
    ring = sum(pace.context_parallel)
    of_ring = ring - step.sequence_parallel_seconds
    of_zero = pace.data_parallel_each + pace.data_parallel_once - step.data_parallel_seconds
    assert of_ring > 0
    assert of_zero == pytest.approx(part * (step.compute_seconds - of_ring))
    assert of_ring + of_zero <= step.compute_seconds * (1 + 1e-12)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_gradients_of_twice_the_bytes_take_as_many_buckets(stage: int) -> None:
    instant = replace(A100, intra_node_bytes_per_second=1e23, inter_node_bytes_per_second=1e23)
    shape, layout = gpt(heads=32, hidden_size=4096, num_layers=36), ParallelLayout(world_size=64)
    waits = []
    for sent in ("bf16", "fp32"):
        (pace,) = paces_of(shape, layout, setup(zero_stage=stage, communication_dtype=sent), instant, EXACT)
        waits.append(pace.data_parallel_each + pace.data_parallel_once)
    assert waits[0] == pytest.approx(waits[1], rel=1e-6)


def test_gradients_are_timed_in_the_dtype_that_they_are_sent_in() -> None:
    shape = gpt(heads=32, hidden_size=4096, num_layers=36)

    def seconds(sequence: int, sent: str | None) -> float:
        layout = ParallelLayout(world_size=64, sequence_parallel_size=sequence)
        (pace,) = paces_of(shape, layout, setup(communication_dtype=sent), A100, EXACT)
        return pace.data_parallel_once

    assert seconds(1, None) == seconds(1, "bf16") < seconds(1, "fp32")
    # Ulysses sends in float32 unless told otherwise.
    assert seconds(2, "bf16") < seconds(2, None) == seconds(2, "fp32")


def test_offload_moves_the_update_to_the_host_and_costs_time() -> None:
    def update(**changes: object) -> StepTime:
        training = setup(zero_stage=3, **changes)
        layout = ParallelLayout(world_size=8)
        return time_of(SMALL, layout, training, micro_batch_size=1, gradient_accumulation_steps=4)

    kept, optimizer, everything = (
        update(),
        update(offload_optimizer="cpu"),
        update(offload_optimizer="cpu", offload_parameters="cpu"),
    )
    assert kept.update_seconds < optimizer.update_seconds == everything.update_seconds
    assert kept.step_seconds < optimizer.step_seconds < everything.step_seconds
    # 8 ranks share a host that updates 4 billion parameters a second.
    assert optimizer.update_seconds > SMALL.parameters / 4e9


def test_ranks_share_the_update_of_a_pipeline_in_bf16_at_stage_0_as_at_stage_1() -> None:
    def seconds(stage: int, dtype: str) -> tuple[float, float]:
        layout = ParallelLayout(world_size=32, pipeline_parallel_size=2)
        training = setup(zero_stage=stage, dtype=dtype)
        step = time_of(SMALL, layout, training, micro_batch_size=1, gradient_accumulation_steps=4)
        return step.update_seconds, step.data_parallel_seconds

    assert seconds(0, "bf16") == seconds(1, "bf16")
    assert seconds(0, "fp16") != seconds(1, "fp16")


def test_the_update_stays_on_the_gpu_where_bf16_optimizer_is_asked_for_nvme() -> None:
    def seconds(place: str) -> float:
        training = setup(grad_accum_dtype="fp32", offload_optimizer=place)
        layout = ParallelLayout(world_size=8)
        return time_of(SMALL, layout, training, micro_batch_size=1, gradient_accumulation_steps=4).update_seconds

    assert seconds("none") == seconds("nvme") < seconds("cpu")


@pytest.mark.parametrize("value", [0.0, -0.5, 1.01, float("nan"), float("inf")])
def test_a_share_outside_0_to_1_is_refused(value: float) -> None:
    with pytest.raises(UsageError, match="compute share of peak must be above 0 and at most 1"):
        CostAssumptions(compute_share_of_peak=value)
