"""The plan: nothing legal is left out, the order is total, and the published case comes out as published."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ds_accum.batch import ParallelLayout
from ds_accum.errors import BatchError, UsageError
from ds_accum.plan.cost import PARTS, CostAssumptions, paces_of, step_time
from ds_accum.plan.hardware import Hardware, read_hardware
from ds_accum.plan.layouts import Limits, legal_layouts, ways_to_train
from ds_accum.plan.memory import estimate_memory
from ds_accum.plan.pipeline import bubble_share
from ds_accum.plan.planned import Plan
from ds_accum.plan.reasons import advantage_over
from ds_accum.plan.remedies import remedies_for
from ds_accum.plan.search import default_training, plan_batch
from ds_accum.plan.shape import ModelShape
from ds_accum.plan.shapes import read_shape
from tests.plan.shapes_for_tests import SMALL, SMALL_WITH_EXPERTS

A100 = read_hardware("A100-80GB")


def plan(**changes: Any) -> Plan:
    given_: dict[str, Any] = {
        "shape": SMALL,
        "hardware": A100,
        "world_size": 8,
        "sequence_length": 1024,
        "global_batch_size": 48,
    }
    return plan_batch(**{**given_, **changes})


# --- exhaustive -------------------------------------------------------------------------------------------------------


def tried_one_by_one(
    shape: ModelShape, hardware: Hardware, world: int, batch: int, limits: Limits
) -> tuple[list[tuple[float, tuple[object, ...]]], dict[str, int], dict[str, float]]:
    """Every micro-batch of every way of every layout, each with its own estimate: no search at all."""
    fitting, counts, nearest = [], dict[str, int](), dict[str, float]()

    def drop(reason: str, needed: float) -> None:
        counts[reason] = counts.get(reason, 0) + 1
        nearest[reason] = min(nearest.get(reason, needed), needed)

    base = default_training(1024)
    layouts = legal_layouts(shape, world_size=world, gpus_per_node=8, sequence_length=1024, limits=limits)
    for layout in layouts:
        for way in ways_to_train(layout, limits, dtype="bf16", accumulates_in_fp32=True, flash_attention=True):
            stage, recompute, optimizer, parameters = way
            if batch % layout.data_parallel_size:
                drop("batch", 0)
                continue
            of_rank = batch // layout.data_parallel_size
            for size in range(1, of_rank + 1):
                if of_rank % size:
                    continue
                training = replace(
                    base,
                    zero_stage=stage,
                    recompute=recompute,
                    offload_optimizer=optimizer,
                    offload_parameters=parameters,
                    overlap_comm=True if stage == 2 else None,
                    megatron_sequence_parallel=layout.tensor_parallel_size > 1,
                    micro_batch_size=size,
                    gradient_accumulation_steps=of_rank // size,
                )
                bubble = bubble_share(layout.pipeline_parallel_size, of_rank // size)
                if limits.max_bubble is not None and bubble > limits.max_bubble:
                    drop("bubble", float(bubble))
                    continue
                memory = estimate_memory(shape, layout, training)
                if memory.peak_bytes > hardware.memory_bytes:
                    drop("memory", memory.peak_bytes)
                    continue
                on_host = memory.host_bytes * min(8, world)
                if limits.host_memory_bytes is not None and on_host > limits.host_memory_bytes:
                    drop("host memory", on_host)
                    continue
                one = replace(training, micro_batch_size=1, gradient_accumulation_steps=1)
                paces = paces_of(shape, layout, one, hardware, CostAssumptions())
                step = step_time(paces, micro_batch_size=size, gradient_accumulation_steps=of_rank // size)
                fitting.append((step.step_seconds, (layout, training)))
    return sorted(fitting, key=lambda item: item[0]), counts, nearest


@settings(max_examples=20, deadline=None)
@given(
    shape=st.sampled_from([SMALL, SMALL_WITH_EXPERTS]),
    world=st.sampled_from([1, 4, 6, 8]),
    # 18 is a batch of 6 GPUs, and of 8 only where some of them are in a pipeline or split tensors.
    batch=st.sampled_from([18, 24, 36]),
    memory=st.integers(2 * 10**9, 12 * 10**9),
    limits=st.sampled_from(
        [
            Limits(),
            Limits(offload=True, host_memory_bytes=4 * 10**9),
            Limits(max_bubble=0.2, max_context_parallel_size=2),
            Limits(max_pipeline_parallel_size=2, offload=True),
        ]
    ),
)
@example(  # a micro-batch too large for the host, and a larger one too large for the GPU
    shape=SMALL_WITH_EXPERTS,
    world=6,
    batch=18,
    memory=3_660_979_854,
    limits=Limits(offload=True, host_memory_bytes=4 * 10**9),
)
def test_the_search_finds_what_trying_every_micro_batch_finds(
    shape: ModelShape, world: int, batch: int, memory: int, limits: Limits
) -> None:
    hardware = A100.override(memory_bytes=memory)
    fitting, counts, nearest = tried_one_by_one(shape, hardware, world, batch, limits)
    found = plan(shape=shape, hardware=hardware, world_size=world, global_batch_size=batch, limits=limits, most=10_000)
    assert found.fitting == len(fitting) == len(found.layouts)
    assert {(item.layout, item.training) for item in found.layouts} == {choice for _, choice in fitting}
    assert [item.step.step_seconds for item in found.layouts] == [seconds for seconds, _ in fitting]
    assert {item.reason: item.count for item in found.dropped} == counts
    assert found.considered == found.fitting + sum(counts.values())
    for item in found.dropped:
        if item.nearest is not None:
            assert item.nearest.needed == nearest[item.reason]


@settings(max_examples=60, deadline=None)
@given(
    model=st.sampled_from(["llama-2-7b", "gpt3-175b", "mixtral-8x7b", "deepseek-v3"]),
    degrees=st.sampled_from([(1, 1), (2, 1), (1, 2), (2, 4), (1, 8)]),
    stage=st.sampled_from([1, 2, 3]),
    recompute=st.sampled_from(["none", "selective", "full"]),
    place=st.sampled_from(["none", "cpu"]),
    flash=st.booleans(),
    of_rank=st.sampled_from([8, 12, 64, 90]),
)
def test_larger_micro_batches_of_the_same_samples_never_need_less(
    model: str, degrees: tuple[int, int], stage: int, recompute: str, place: str, flash: bool, of_rank: int
) -> None:
    """What the search leaves out by; a single micro-batch, which it tries on its own, may need less."""
    tensor, pipeline = degrees
    layout = ParallelLayout(world_size=64, tensor_parallel_size=tensor, pipeline_parallel_size=pipeline)
    base = replace(
        default_training(2048),
        zero_stage=1 if pipeline > 1 else stage,
        recompute=recompute,
        offload_optimizer=place,
        flash_attention=flash,
        megatron_sequence_parallel=tensor > 1,
    )
    shape = read_shape(model)
    sizes = [size for size in range(1, of_rank) if of_rank % size == 0]
    estimates = [
        estimate_memory(
            shape, layout, replace(base, micro_batch_size=size, gradient_accumulation_steps=of_rank // size)
        )
        for size in sizes
    ]
    for less, more in pairwise(estimates):
        assert less.peak_bytes <= more.peak_bytes
        assert less.host_bytes <= more.host_bytes


def test_data_parallel_sizes_that_do_not_divide_the_batch_are_named() -> None:
    assert plan(global_batch_size=48).uneven_data_parallel_sizes == ()
    assert plan(global_batch_size=12).uneven_data_parallel_sizes == (8,)
    assert plan(global_batch_size=9).uneven_data_parallel_sizes == (2, 4, 8)


def test_both_ends_of_the_brute_force_are_reached() -> None:
    """The property above would hold of a search that finds nothing, or drops nothing, if there were nothing to."""
    fitting, counts, _ = tried_one_by_one(SMALL, A100.override(memory_bytes=4 * 10**9), 8, 32, Limits())
    assert len(fitting) > 100 and counts["memory"] > 20


def test_every_layout_that_fits_meets_the_target_exactly() -> None:
    found = plan(most=10_000)
    assert found.fitting > 100
    for item in found.layouts:
        assert item.ledger.global_batch_size == 48
        assert item.memory.peak_bytes <= A100.memory_bytes
        assert item.layout.world_size == 8


# --- order ------------------------------------------------------------------------------------------------------------


def test_layouts_are_in_order_of_time_and_the_plan_is_the_same_every_time() -> None:
    first, second = plan(most=10_000), plan(most=10_000)
    assert first == second
    seconds = [item.step.step_seconds for item in first.layouts]
    assert seconds == sorted(seconds)
    assert plan(most=3).layouts == first.layouts[:3]


def test_the_plan_does_not_depend_on_the_seed_of_hashes() -> None:
    code = (
        "from tests.plan.test_search import plan\n"
        "print([(x.layout, x.training, x.step.step_seconds) for x in plan(most=50).layouts])"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(printed) == 1


def test_the_splits_are_the_best_of_every_way_to_divide_the_gpus() -> None:
    found = plan(most=10_000)
    layouts = [item.layout for item in found.splits]
    assert len(set(layouts)) == len(layouts)
    assert set(layouts) == {item.layout for item in found.layouts}
    for split in found.splits:
        assert split == next(item for item in found.layouts if item.layout == split.layout)


def test_the_advantage_over_the_next_is_the_difference_of_the_parts() -> None:
    first, other = plan().layouts[:2]
    advantage = advantage_over(first, other)
    assert advantage.seconds == other.step.step_seconds - first.step.step_seconds >= 0
    saved, spent = (sum(seconds for _, seconds in parts) for parts in (advantage.saved, advantage.spent))
    assert saved - spent == pytest.approx(advantage.seconds)
    named = [part for part, _ in (*advantage.saved, *advantage.spent)]
    assert len(set(named)) == len(named) and set(named) <= set(PARTS)


def test_less_time_a_step_is_more_tokens_a_second_and_more_of_the_peak() -> None:
    found = plan()
    first, last = found.layouts[0], found.layouts[-1]
    assert first.tokens_per_second > last.tokens_per_second
    assert 0 < found.model_flops_share(last) < found.model_flops_share(first) < 1
    assert first.tokens_per_second == pytest.approx(found.tokens_per_step / first.step.step_seconds)


# --- the published case -----------------------------------------------------------------------------------------------


def published(*, gpus: int, batch: int) -> Plan:
    """ZeRO-3 alone, in fp16, with dropout and full recompute and no FlashAttention, at micro-batch 4 at the most."""
    training = replace(
        default_training(2048),
        dtype="fp16",
        grad_accum_dtype=None,
        communication_dtype=None,
        flash_attention=False,
        dropout=True,
    )
    limits = Limits(
        zero_stages=(3,),
        recompute=("full",),
        max_tensor_parallel_size=1,
        max_pipeline_parallel_size=1,
        max_sequence_parallel_size=1,
        max_micro_batch_size=4,
    )
    return plan(
        shape=read_shape("megatron-530b"),
        world_size=gpus,
        sequence_length=2048,
        global_batch_size=batch,
        training=training,
        limits=limits,
        most=10,
    )


def test_530_billion_parameters_with_zero_3_and_micro_batch_4_do_not_fit_560_gpus_and_fit_640() -> None:
    """Narayanan et al. 2021, arXiv 2104.04473, Table 2 and its caption."""
    sizes = {item.ledger.micro_batch_size for item in published(gpus=560, batch=2240).layouts}
    assert sizes == {1, 2}
    (miss,) = published(gpus=560, batch=2240).dropped
    assert miss.nearest is not None
    assert miss.nearest.ledger.micro_batch_size == 4 and miss.nearest.factor < 1.05
    fits = published(gpus=640, batch=2560)
    assert {item.ledger.micro_batch_size for item in fits.layouts} == {1, 2, 4}
    assert fits.layouts[0].ledger.micro_batch_size == 4
    assert fits.layouts[0].ledger.describe() == (
        "global batch 2560 = micro batch 4 x data parallel 640 x accumulation 1"
    )


def test_the_batch_of_560_gpus_is_none_of_640_which_is_why_it_was_raised_to_2560() -> None:
    with pytest.raises(BatchError, match="global batch 2240 is not a multiple of data parallel 640") as caught:
        published(gpus=640, batch=2240)
    assert caught.value.remedy is not None and "1920 or 2560" in caught.value.remedy


# --- speed ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "length", "batch", "limits"),
    [
        ("llama-3-70b", 8192, 2048, Limits(offload=True)),
        ("mixtral-8x7b", 8192, 4096, Limits(offload=True, max_context_parallel_size=16)),
        ("deepseek-v3", 4096, 16384, Limits()),
    ],
)
def test_16384_gpus_are_planned_in_under_ten_seconds_on_one_core(
    model: str, length: int, batch: int, limits: Limits
) -> None:
    start = time.process_time()
    found = plan(
        shape=read_shape(model),
        hardware=read_hardware("H100"),
        world_size=16384,
        sequence_length=length,
        global_batch_size=batch,
        limits=limits,
    )
    assert found.layouts
    assert time.process_time() - start < 10


# --- where nothing fits -----------------------------------------------------------------------------------------------


def test_where_nothing_fits_the_nearest_miss_says_by_how_much_and_every_remedy_helps() -> None:
    found = plan(shape=read_shape("llama-2-70b"), hardware=read_hardware("A100-40GB"), global_batch_size=64)
    assert found.layouts == () and found.fitting == 0
    (memory,) = found.dropped
    assert memory.reason == "memory" and memory.count == found.considered
    assert memory.nearest is not None and memory.nearest.factor > 1
    changes = [remedy.change for remedy in remedies_for(found)]
    assert changes == ["allow offload to the memory of the host", "use 64 GPUs", "use B200-180GB"]


def test_each_limit_that_stands_in_the_way_is_named() -> None:
    limits = Limits(
        zero_stages=(1,),
        recompute=("none",),
        max_tensor_parallel_size=1,
        max_pipeline_parallel_size=1,
        max_sequence_parallel_size=1,
        max_bubble=0.0,
    )
    found = plan(hardware=A100.override(memory_bytes=4 * 10**9), limits=limits, sequence_length=8192)
    assert not found.layouts
    assert [remedy.change for remedy in remedies_for(found)] == [
        "allow full recompute",
        # Not: every ZeRO stage, offload, any bubble, a pipeline or more GPUs, none of which helps alone.
        "lift the limit of tensor parallel",
        "lift the limit of sequence parallel",
        "use RTX4090-24GB",
    ]


def test_a_host_that_is_too_small_is_a_reason_of_its_own() -> None:
    limits = Limits(offload=True, host_memory_bytes=10**9, max_tensor_parallel_size=1, max_pipeline_parallel_size=1)
    found = plan(shape=read_shape("llama-2-7b"), hardware=A100.override(memory_bytes=14 * 10**9), limits=limits)
    reasons = {item.reason for item in found.dropped}
    assert "host memory" in reasons
    host = next(item for item in found.dropped if item.reason == "host memory")
    assert host.nearest is not None and host.nearest.training.offload_optimizer == "cpu"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"world_size": 0}, "number of GPUs must be at least 1, not 0"),
        ({"sequence_length": 0}, "sequence length must be at least 1, not 0"),
        ({"sequence_length": 10.0}, "sequence length must be an integer"),
        ({"most": 0}, "number of layouts must be at least 1"),
        ({"hardware": read_hardware("V100")}, "V100-32GB does not compute in bf16"),
        ({"global_batch_size": None}, "just one of them"),
    ],
)
def test_what_can_not_be_asked_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        plan(**change)
