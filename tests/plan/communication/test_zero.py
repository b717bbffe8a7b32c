"""What each ZeRO stage exchanges: equal to the counts of real runs, which the comparison's formulas are held to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds_accum.batch import BatchLedger
from ds_accum.compare.formulas import expected_communication
from ds_accum.compare.spec import RunSpec, Variant
from ds_accum.errors import UsageError
from ds_accum.plan.communication import (
    Transfer,
    gathers_of_a_micro_batch,
    passed_bytes,
    total_sent_bytes,
    zero_exchanges,
    zero_transfers,
)

P = 17_376


def transfers(stage: int, accumulation: int = 4, *, parameters: int = P, ranks: int = 2, coalesced: bool = False):  # type: ignore[no-untyped-def]
    return zero_transfers(
        stage,
        parameters=parameters,
        ranks=ranks,
        gradient_accumulation_steps=accumulation,
        parameter_bytes=4,
        gradient_bytes=4,
        coalesced=coalesced,
    )


def by_kind(found: tuple[Transfer, ...]) -> dict[str, int]:
    assert len({transfer.kind for transfer in found}) == len(found)
    return {transfer.kind: transfer.passed_bytes for transfer in found}


def counted(stage: int, accumulation: int, ranks: int, *, coalesced: bool, parameters: int = P) -> dict[str, float]:
    """By kind, what real runs count, without the norm of the gradient, which is all of the step's all-reduces."""
    variant = Variant(
        name="variant",
        engine="stock",
        stage=stage,
        micro_batch_size=2,
        gradient_accumulation_steps=accumulation,
        coalesce=coalesced,
        config={"zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0}},
    )
    spec = RunSpec(world_size=ranks, global_batch_size=16, steps=3, dtype="fp32", gradient_clipping=1.0)
    counts = expected_communication(variant, spec, parameters=parameters)
    assert counts is not None
    found: dict[str, float] = {}
    for count in counts:
        if (count.moment, count.kind) != ("step", "all-reduce"):
            found[count.kind] = found.get(count.kind, 0) + count.bytes
    return found


@pytest.mark.parametrize("coalesced", [False, True])
@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_stage_passes_what_is_counted_in_real_runs(
    stage: int, ranks: int, accumulation: int, coalesced: bool
) -> None:
    planned = by_kind(transfers(stage, accumulation, ranks=ranks, coalesced=coalesced))
    assert planned == counted(stage, accumulation, ranks, coalesced=coalesced)


# Counted on two ranks with 17,376 float32 parameters (tests/compare/test_formulas.py has the runs).
@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        (0, {"all-reduce": 69_504}),
        (1, {"all-reduce": 69_504, "all-gather": 34_752}),
        (2, {"all-reduce": 278_016, "all-gather": 34_752}),
        (3, {"reduce-scatter": 278_016, "all-gather": 139_008}),
    ],
)
def test_the_bytes_of_four_micro_batches(stage: int, expected: dict[str, int]) -> None:
    assert by_kind(transfers(stage)) == expected


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_one_rank_exchanges_nothing(stage: int) -> None:
    assert transfers(stage, ranks=1) == ()


def test_a_rank_without_experts_exchanges_none() -> None:
    assert transfers(1, parameters=0) == ()


def test_at_accumulation_1_stages_0_to_2_move_two_models_and_stage_3_three() -> None:
    """Rajbhandari et al. 2020, section 7: 2 P, and 3 P for stage 3 with parameters gathered twice. Of stages 1 and 2
    this DeepSpeed reduces the whole gradient on every rank and gathers parameters on top."""
    model, ranks = 2 * 10**12, 1000
    moved = [
        total_sent_bytes(transfers(stage, 1, parameters=model, ranks=ranks)) / (4 * model * (ranks - 1) / ranks)
        for stage in range(4)
    ]
    assert moved == [2, 3, 3, 3]


@given(
    stage=st.integers(0, 3),
    accumulation=st.integers(1, 64),
    parameters=st.integers(1, 10**12),
    ranks=st.integers(2, 4096),
    coalesced=st.booleans(),
)
def test_gradients_are_reduced_as_often_as_the_ledger_synchronizes(
    stage: int, accumulation: int, parameters: int, ranks: int, coalesced: bool
) -> None:
    ledger = BatchLedger(micro_batch_size=1, gradient_accumulation_steps=accumulation, data_parallel_size=ranks)
    gradients = transfers(stage, accumulation, parameters=parameters, ranks=ranks, coalesced=coalesced)[0]
    at_boundary = stage < 2 or coalesced
    assert gradients.times == ledger.synchronizations_per_step(reduce_at_boundary=at_boundary)


@given(stage=st.integers(0, 3), accumulation=st.integers(1, 64), parameters=st.integers(1, 10**12))
def test_coalescing_saves_exactly_the_reductions_before_the_boundary(
    stage: int, accumulation: int, parameters: int
) -> None:
    every = transfers(stage, accumulation, parameters=parameters)
    held = transfers(stage, accumulation, parameters=parameters, coalesced=True)
    saved = passed_bytes(every) - passed_bytes(held)
    assert saved == ((accumulation - 1) * held[0].bytes_each if stage >= 2 else 0)


@given(parameters=st.integers(1, 10**9), ranks=st.integers(2, 512), stage=st.integers(1, 3))
def test_gathered_parts_hold_the_whole_and_little_more(parameters: int, ranks: int, stage: int) -> None:
    gathering = zero_exchanges(stage, tensors=(parameters,), ranks=ranks).gathering
    assert gathering is not None
    assert parameters <= gathering.elements * ranks < parameters + 2 * ranks


def test_stage_3_gathers_once_a_micro_batch_where_everything_stays_and_twice_beyond() -> None:
    assert gathers_of_a_micro_batch(10**9) == 1
    assert gathers_of_a_micro_batch(10**9 + 1) == 2
    assert gathers_of_a_micro_batch(10**6, max_live_parameters=10**5) == 2
    assert gathers_of_a_micro_batch(10**6, max_reuse_distance=10**5) == 2
    assert [found.times for found in transfers(3, 4, parameters=2 * 10**9)] == [4, 8]


@pytest.mark.parametrize("stage", [-1, 4])
def test_there_is_no_other_stage(stage: int) -> None:
    with pytest.raises(UsageError, match=f"ZeRO has the stages 0, 1, 2 and 3, not {stage}"):
        transfers(stage)
