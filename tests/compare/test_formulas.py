"""Every row of counts taken from real runs that a formula can give: 17,376 parameters, two ranks, one bucket."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ds_accum.compare.formulas import dtype_of, expected_communication
from ds_accum.compare.result import CollectiveCount
from ds_accum.compare.spec import Dtype, EngineKind, RunSpec, Variant

P = 17_376
TENSORS = (1024,) * 16 + (992,)
WHOLE, HALF = 4 * P, 2 * P

Counts = dict[tuple[str, str], tuple[float, float]]

REDUCE = {("boundary", "all-reduce"): (1, WHOLE)}
NORM = {("step", "all-reduce"): (1, 4)}
GATHER = {("step", "all-gather"): (1, HALF)}
STAGE_3_NORM = {("step", "all-reduce"): (1, 8)}
STAGE_3_BOUNDARY = {("boundary", "all-gather"): (2, HALF), ("boundary", "reduce-scatter"): (1, WHOLE)}


def variant(
    engine: EngineKind = "stock",
    stage: int | None = None,
    accumulation: int = 4,
    zero: dict[str, Any] | None = None,
    **config: Any,
) -> Variant:
    values = {"stage": stage, "reduce_bucket_size": 10**7, "stage3_param_persistence_threshold": 0, **(zero or {})}
    return Variant(
        name="variant",
        engine=engine,
        stage=stage,
        micro_batch_size=2,
        gradient_accumulation_steps=accumulation,
        config={} if stage is None else {"zero_optimization": values, **config},
    )


def spec(dtype: Dtype = "fp32", world_size: int = 2, clipping: float = 1.0) -> RunSpec:
    return RunSpec(world_size=world_size, global_batch_size=16, steps=3, dtype=dtype, gradient_clipping=clipping)


def table(counts: tuple[CollectiveCount, ...] | None) -> Counts:
    assert counts is not None
    assert len({(count.moment, count.kind) for count in counts}) == len(counts)
    return {(count.moment, count.kind): (count.calls, count.bytes) for count in counts}


def expected(row: Variant, dtype: Dtype = "fp32", **model: Any) -> Counts:
    return table(expected_communication(in_dtype(row, dtype), spec(dtype), parameters=P, **model))


def in_dtype(row: Variant, dtype: Dtype) -> Variant:
    """DeepSpeed's config says what is computed in."""
    if row.stage is None or dtype == "fp32":
        return row
    return dataclasses.replace(row, config={**row.config, dtype: {"enabled": True}})


@pytest.mark.parametrize("accumulation", [1, 2, 4, 8])
def test_stage_0_reduces_once(accumulation: int) -> None:
    assert expected(variant(stage=0, accumulation=accumulation)) == {**REDUCE, **NORM}


@pytest.mark.parametrize("accumulation", [1, 2, 4, 8])
@pytest.mark.parametrize("zero", [{}, {"overlap_comm": True}])
def test_stage_1_reduces_once_and_gathers_once(accumulation: int, zero: dict[str, Any]) -> None:
    assert expected(variant(stage=1, accumulation=accumulation, zero=zero)) == {**REDUCE, **NORM, **GATHER}


@pytest.mark.parametrize(
    ("accumulation", "before"), [(1, None), (2, (1, 69_504)), (4, (3, 208_512)), (8, (7, 486_528))]
)
@pytest.mark.parametrize("zero", [{}, {"reduce_scatter": False}, {"offload_optimizer": {"device": "cpu"}}])
def test_stage_2_reduces_in_every_backward(accumulation: int, before: Any, zero: dict[str, Any]) -> None:
    micro = {("micro-batch", "all-reduce"): before} if before else {}
    assert expected(variant(stage=2, accumulation=accumulation, zero=zero)) == {**micro, **REDUCE, **NORM, **GATHER}


@pytest.mark.parametrize(
    ("accumulation", "gathers", "reductions"),
    [(1, None, None), (2, (2, 34_752), (1, 69_504)), (4, (6, 104_256), (3, 208_512)), (8, (14, 243_264), (7, 486_528))],
)
def test_stage_3_gathers_and_reduces_in_every_micro_batch(accumulation: int, gathers: Any, reductions: Any) -> None:
    micro = {("micro-batch", "all-gather"): gathers, ("micro-batch", "reduce-scatter"): reductions} if gathers else {}
    assert expected(variant(stage=3, accumulation=accumulation)) == {**micro, **STAGE_3_BOUNDARY, **STAGE_3_NORM}


def test_stage_3_without_reduce_scatter_reduces_all() -> None:
    assert expected(variant(stage=3, zero={"reduce_scatter": False})) == {
        ("micro-batch", "all-gather"): (6, 104_256),
        ("micro-batch", "all-reduce"): (3, 208_512),
        ("boundary", "all-gather"): (2, HALF),
        ("boundary", "all-reduce"): (1, WHOLE),
        **STAGE_3_NORM,
    }


def test_stage_3_gathers_small_parameters_after_the_step_alone() -> None:
    row = variant(stage=3, zero={"stage3_param_persistence_threshold": 100_000})
    assert expected(row, tensors=TENSORS) == {
        ("micro-batch", "reduce-scatter"): (3, 208_512),
        ("boundary", "reduce-scatter"): (1, WHOLE),
        ("step", "all-gather"): (17, HALF),
        **STAGE_3_NORM,
    }


# The token-weighted rows: the engine's totals are one all-gather of 64 bytes.


@pytest.mark.parametrize(("stage", "gather"), [(0, {}), (1, GATHER)])
def test_the_token_engine_adds_64_bytes_to_stages_0_and_1(stage: int, gather: Counts) -> None:
    totals = {("boundary", "all-gather"): (1, 64)}
    assert expected(variant("token", stage=stage)) == {**REDUCE, **totals, **NORM, **gather}


def test_the_token_engine_adds_64_bytes_to_stage_2() -> None:
    micro = {("micro-batch", "all-reduce"): (3, 208_512)}
    totals = {("boundary", "all-gather"): (1, 64)}
    assert expected(variant("token", stage=2)) == {**micro, **REDUCE, **totals, **NORM, **GATHER}


def test_the_token_engine_adds_64_bytes_to_stage_3() -> None:
    assert expected(variant("token", stage=3)) == {
        ("micro-batch", "all-gather"): (6, 104_256),
        ("micro-batch", "reduce-scatter"): (3, 208_512),
        ("boundary", "all-gather"): (3, HALF + 64),
        ("boundary", "reduce-scatter"): (1, WHOLE),
        **STAGE_3_NORM,
    }


@pytest.mark.parametrize("stage", [1, 2])
def test_a_coalesced_reduction_happens_once(stage: int) -> None:
    row = variant("token", stage=stage, ds_accum={"reduction": "boundary"})
    assert expected(row) == {**REDUCE, ("boundary", "all-gather"): (1, 64), **NORM, **GATHER}


def test_a_coalesced_stage_3_still_gathers_in_every_micro_batch() -> None:
    assert expected(variant("token", stage=3, ds_accum={"reduction": "boundary"})) == {
        ("micro-batch", "all-gather"): (6, 104_256),
        ("boundary", "all-gather"): (3, HALF + 64),
        ("boundary", "reduce-scatter"): (1, WHOLE),
        **STAGE_3_NORM,
    }


@pytest.mark.parametrize(("stage", "totals"), [(1, {}), (2, {}), (3, {("boundary", "all-gather"): (2, HALF)})])
def test_a_loop_that_coalesces_by_itself_reduces_once(stage: int, totals: Counts) -> None:
    counts = expected(dataclasses.replace(variant(stage=stage), coalesce=True))
    reductions = {key: value for key, value in counts.items() if key[0] != "step" and "gather" not in key[1]}
    assert reductions == {("boundary", "reduce-scatter" if stage == 3 else "all-reduce"): (1, WHOLE)}
    assert counts.get(("boundary", "all-gather")) == totals.get(("boundary", "all-gather"))


def test_the_totals_travel_in_the_step_where_no_backward_is_known_to_be_the_last() -> None:
    looped = expected(dataclasses.replace(variant("token", stage=2), coalesce=True))
    (calls, size) = GATHER[("step", "all-gather")]
    assert looped == {**REDUCE, **NORM, ("step", "all-gather"): (calls + 1, size + 64)}


def test_stock_deepspeed_does_not_heed_the_block_of_ds_accum() -> None:
    assert expected(variant(stage=2, ds_accum={"reduction": "boundary"})) == expected(variant(stage=2))


def test_beyond_1024_ranks_the_totals_are_two_reductions() -> None:
    many = table(expected_communication(variant("token", stage=0), spec(world_size=2048), parameters=P))
    assert many == {("boundary", "all-reduce"): (3, WHOLE + 96), **NORM}


# bfloat16: half the bytes, and an overflow check of one byte.


def test_bf16_stage_0_sends_the_gradient_alone() -> None:
    assert expected(variant(stage=0), "bf16") == {("boundary", "all-reduce"): (1, 34_752)}


@pytest.mark.parametrize(("stage", "micro"), [(1, {}), (2, {("micro-batch", "all-reduce"): (3, 104_256)})])
def test_bf16_stages_1_and_2_check_for_overflow(stage: int, micro: Counts) -> None:
    assert expected(variant(stage=stage), "bf16") == {
        **micro,
        ("boundary", "all-reduce"): (1, 34_752),
        ("step", "all-reduce"): (2, 5),
        ("step", "all-gather"): (1, 17_376),
    }


def test_bf16_stage_3() -> None:
    assert expected(variant(stage=3), "bf16") == {
        ("micro-batch", "all-gather"): (6, 52_128),
        ("micro-batch", "reduce-scatter"): (3, 104_256),
        ("boundary", "all-gather"): (2, 17_376),
        ("boundary", "reduce-scatter"): (1, 34_752),
        **STAGE_3_NORM,
    }


def test_float32_accumulation_in_bf16_stage_1_is_another_optimizer_that_sends_no_norm() -> None:
    row = variant(stage=1, data_types={"grad_accum_dtype": "fp32"})
    assert expected(row, "bf16") == {("boundary", "all-reduce"): (1, 34_752), ("step", "all-gather"): (1, 17_376)}


def test_float32_accumulation_does_not_change_what_bf16_stage_2_sends() -> None:
    row = variant(stage=2, data_types={"grad_accum_dtype": "fp32"})
    assert expected(row, "bf16") == expected(variant(stage=2), "bf16")


def test_gradients_are_sent_in_the_communication_dtype() -> None:
    row = variant(stage=1, communication_data_type="fp32")
    counts = expected(row, "bf16")
    assert counts["boundary", "all-reduce"] == (1, WHOLE)
    assert counts["step", "all-gather"] == (1, 17_376)


# Baselines.


def test_ddp_reduces_at_the_boundary_and_ddp_every_in_every_backward() -> None:
    assert expected(variant("ddp")) == REDUCE
    assert expected(variant("ddp-every")) == {("micro-batch", "all-reduce"): (3, 208_512), **REDUCE}


def test_ddp_closes_its_first_bucket_at_one_mebibyte_and_the_others_at_25() -> None:
    tensors = (7_000_000, 300_000, 300_000, 10)  # backward fills 10 + 300,000 floats, then 300,000 + 7,000,000
    counts = expected_communication(variant("ddp"), spec(), parameters=sum(tensors), tensors=tensors)
    assert table(counts) == {("boundary", "all-reduce"): (2, 4 * sum(tensors))}
    tensors = (10, *tensors)
    counts = expected_communication(variant("ddp"), spec(), parameters=sum(tensors), tensors=tensors)
    assert table(counts) == {("boundary", "all-reduce"): (3, 4 * sum(tensors))}


def test_fsdp_gathers_every_group_twice_but_the_root() -> None:
    groups = (3000, 3000, 2688)
    every = expected(variant("fsdp-every"), tensors=TENSORS, fsdp_groups=groups)
    assert every == {
        ("micro-batch", "all-gather"): (15, 3 * 4 * (8688 + 6000)),
        ("micro-batch", "reduce-scatter"): (9, 3 * WHOLE),
        ("boundary", "all-gather"): (5, 4 * (8688 + 6000)),
        ("boundary", "reduce-scatter"): (3, WHOLE),
        ("step", "all-reduce"): (1, 4 * 17),
    }
    deferred = expected(variant("fsdp"), tensors=TENSORS, fsdp_groups=groups)
    del every["micro-batch", "reduce-scatter"]
    assert deferred == every


def test_in_bf16_ddp_keeps_float32_and_fsdp_gathers_half_and_reduces_the_whole() -> None:
    assert expected(variant("ddp"), "bf16") == REDUCE
    counts = expected(variant("fsdp", accumulation=1), "bf16", tensors=TENSORS, fsdp_groups=(P // 2,))
    assert counts["boundary", "all-gather"] == (1, P)
    assert counts["boundary", "reduce-scatter"] == (1, WHOLE)


def test_the_truth_sends_nothing() -> None:
    assert expected(variant("single")) == {}


# Buckets, padding, and where there is no formula.


def test_small_buckets_are_more_calls_of_the_same_bytes() -> None:
    row = variant(stage=1, zero={"reduce_bucket_size": 2048})
    assert expected(row, tensors=TENSORS)["boundary", "all-reduce"] == (9, WHOLE)


def test_a_parameter_beyond_the_bucket_is_reduced_alone() -> None:
    row = variant(stage=2, accumulation=1, zero={"reduce_bucket_size": 100})
    counts = expected_communication(row, spec(), parameters=350, tensors=(50, 200, 100))
    assert table(counts)["boundary", "all-reduce"] == (3, 1400)


def test_partitions_are_padded() -> None:
    flat = expected_communication(variant(stage=1), spec(world_size=4), parameters=17)
    assert table(flat)["step", "all-gather"] == (1, 24 / 4 * 4)
    each = expected_communication(variant(stage=3, accumulation=1), spec(world_size=4), parameters=17, tensors=(5, 12))
    assert table(each)["boundary", "all-gather"] == (2, (2 + 3) * 4)
    assert table(each)["boundary", "reduce-scatter"] == (1, (2 + 3) * 4 * 4)


def test_without_clipping_stage_0_and_fsdp_send_no_norm() -> None:
    assert table(expected_communication(variant(stage=0), spec(clipping=0.0), parameters=P)) == REDUCE
    counts = expected_communication(variant("fsdp"), spec(clipping=0.0), parameters=P, fsdp_groups=(P // 2,))
    assert ("step", "all-reduce") not in table(counts)


@pytest.mark.parametrize(
    ("row", "dtype"),
    [
        (variant(stage=0), "fp16"),
        (variant("fsdp"), "fp32"),
        (variant(stage=1, zero={"reduce_bucket_size": 2048}), "fp32"),
        (variant(stage=1, zero={"reduce_bucket_size": "auto"}), "fp32"),
        (variant(stage=3, zero={"stage3_prefetch_bucket_size": 0}), "fp32"),
        (variant(stage=3, zero={"stage3_max_reuse_distance": 1000}), "fp32"),
        (variant(stage=3, zero={"stage3_param_persistence_threshold": 100_000}), "fp32"),
        (variant(stage=3, zero={"zero_quantized_weights": True}), "fp32"),
        (variant(stage=2, torch_autocast={"enabled": True}), "fp32"),
    ],
)
def test_where_the_calls_depend_on_more_there_is_no_formula(row: Variant, dtype: Dtype) -> None:
    assert expected_communication(in_dtype(row, dtype), spec(dtype), parameters=P) is None


def test_the_config_of_a_variant_says_its_dtype_and_the_run_that_of_the_others() -> None:
    assert dtype_of(variant(stage=1, bf16={"enabled": True}), spec("fp32")) == "bf16"
    assert dtype_of(variant(stage=1, bf16={"enabled": False}), spec("bf16")) == "fp32"
    assert dtype_of(variant(stage=1, fp16={"enabled": True}), spec("fp32")) == "fp16"
    assert dtype_of(variant("ddp"), spec("bf16")) == "bf16"


def test_one_rank_has_no_formula() -> None:
    assert expected_communication(variant(stage=1), spec(world_size=1), parameters=P) is None


def test_tensors_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ValueError, match="17 elements together, not 18"):
        expected_communication(variant(stage=1), spec(), parameters=18, tensors=(17,))
