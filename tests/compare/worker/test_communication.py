"""The collectives that a launch counts are those that DeepSpeed 0.19.8 was seen to call, in number and in bytes.

All cases train a model of P = 17,376 parameters in 17 tensors on two ranks, everything in one bucket, in one launch.
GA is the number of micro-batches in a window. Bytes are those passed in, so an all-gather of all parameters is P / 2.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from worker_runs import Launch, counts, launch, variant

from ds_accum.compare.measures import formula_differences
from ds_accum.compare.spec import RunSpec, Variant, Workload

P = 17_376
FP32, BF16 = 4 * P, 2 * P
WINDOW = 8
"""Samples per step and rank: micro-batch x GA."""

Counts = dict[tuple[str, str], tuple[float, float]]
OFFLOAD = {"offload_optimizer": {"device": "cpu"}}


def case(name: str, engine: Any, stage: int | None, accumulation: int = 4, **options: Any) -> Variant:
    return variant(engine, stage, name=name, micro=WINDOW // accumulation, accumulation=accumulation, **options)


def expected(*, micro: Counts | None = None, boundary: Counts | None = None, step: Counts | None = None) -> Counts:
    """`{kind: (calls, bytes)}` of each moment, in one table."""
    moments = {"micro-batch": micro, "boundary": boundary, "step": step}
    return {(moment, kind): value for moment, kinds in moments.items() for kind, value in (kinds or {}).items()}  # type: ignore[misc]


def times(calls: int, each: float) -> tuple[float, float]:
    return (float(calls), calls * each)


def of_stage(stage: int, accumulation: int) -> Counts:
    """fp32, as DeepSpeed is configured here."""
    before = accumulation - 1
    norm = {"all-reduce": (1.0, 4.0)}
    if stage == 0:
        return expected(boundary={"all-reduce": times(1, FP32)}, step=norm)
    gathered = {"all-gather": times(1, FP32 / 2)}
    if stage == 1:
        return expected(boundary={"all-reduce": times(1, FP32)}, step=norm | gathered)
    if stage == 2:
        micro = {"all-reduce": times(before, FP32)} if before else {}
        return expected(micro=micro, boundary={"all-reduce": times(1, FP32)}, step=norm | gathered)

    def each(count: int) -> Any:
        return {"all-gather": (2.0 * count, count * FP32 / 2), "reduce-scatter": times(count, FP32)}

    return expected(micro=each(before) if before else {}, boundary=each(1), step={"all-reduce": (1.0, 8.0)})


FP32_CASES = {f"zero-{stage} GA {ga}": (stage, ga) for stage in range(4) for ga in (1, 2, 4, 8)}

OTHERS: dict[str, tuple[Variant, Counts]] = {
    found.name: (found, counted)
    for found, counted in (
        (
            case("zero-1 coalesce", "stock", 1, coalesce=True),
            of_stage(1, 4),
        ),
        (
            case("zero-2 coalesce", "stock", 2, coalesce=True),
            of_stage(1, 4),
        ),
        (
            # The loop holds the reductions back, so no backward is known to be the last: the totals come in the step.
            case("zero-2 token coalesce", "token", 2, coalesce=True),
            expected(
                boundary={"all-reduce": times(1, FP32)},
                step={"all-reduce": (1.0, 4.0), "all-gather": (2.0, FP32 / 2 + 64)},
            ),
        ),
        (
            case("zero-3 coalesce", "stock", 3, coalesce=True),
            expected(
                micro={"all-gather": (6.0, 3 * FP32 / 2)},
                boundary={"all-gather": (2.0, FP32 / 2), "reduce-scatter": times(1, FP32)},
                step={"all-reduce": (1.0, 8.0)},
            ),
        ),
        (case("zero-1 overlap", "stock", 1, zero={"overlap_comm": True}), of_stage(1, 4)),
        (case("zero-2 reduce_scatter off", "stock", 2, zero={"reduce_scatter": False}), of_stage(2, 4)),
        (
            case("zero-3 reduce_scatter off", "stock", 3, zero={"reduce_scatter": False}),
            expected(
                micro={"all-gather": (6.0, 3 * FP32 / 2), "all-reduce": times(3, FP32)},
                boundary={"all-gather": (2.0, FP32 / 2), "all-reduce": times(1, FP32)},
                step={"all-reduce": (1.0, 8.0)},
            ),
        ),
        (
            case("zero-3 persistent", "stock", 3, zero={"stage3_param_persistence_threshold": 100_000}),
            expected(
                micro={"reduce-scatter": times(3, FP32)},
                boundary={"reduce-scatter": times(1, FP32)},
                step={"all-reduce": (1.0, 8.0), "all-gather": (17.0, FP32 / 2)},
            ),
        ),
        (case("zero-2 offload", "stock", 2, zero=OFFLOAD), of_stage(2, 4)),
        (
            case("zero-0 bf16", "stock", 0, dtype="bf16"),
            expected(boundary={"all-reduce": times(1, BF16)}),
        ),
        (
            case("zero-1 bf16", "stock", 1, dtype="bf16"),
            expected(
                boundary={"all-reduce": times(1, BF16)},
                step={"all-reduce": (2.0, 5.0), "all-gather": times(1, BF16 / 2)},
            ),
        ),
        (
            case("zero-2 bf16", "stock", 2, dtype="bf16"),
            expected(
                micro={"all-reduce": times(3, BF16)},
                boundary={"all-reduce": times(1, BF16)},
                step={"all-reduce": (2.0, 5.0), "all-gather": times(1, BF16 / 2)},
            ),
        ),
        (
            case("zero-3 bf16", "stock", 3, dtype="bf16"),
            expected(
                micro={"all-gather": (6.0, 3 * BF16 / 2), "reduce-scatter": times(3, BF16)},
                boundary={"all-gather": (2.0, BF16 / 2), "reduce-scatter": times(1, BF16)},
                step={"all-reduce": (1.0, 8.0)},
            ),
        ),
        (
            case("BF16_Optimizer", "stock", 1, dtype="bf16", config={"data_types": {"grad_accum_dtype": "fp32"}}),
            expected(boundary={"all-reduce": times(1, BF16)}, step={"all-gather": times(1, BF16 / 2)}),
        ),
        (
            case(
                "zero-2 bf16 summed in fp32",
                "stock",
                2,
                dtype="bf16",
                config={"data_types": {"grad_accum_dtype": "fp32"}},
            ),
            expected(
                micro={"all-reduce": times(3, BF16)},
                boundary={"all-reduce": times(1, BF16)},
                step={"all-reduce": (2.0, 5.0), "all-gather": times(1, BF16 / 2)},
            ),
        ),
        (case("ddp", "ddp", None), expected(boundary={"all-reduce": times(1, FP32)})),
        (
            case("ddp-every", "ddp-every", None),
            expected(micro={"all-reduce": times(3, FP32)}, boundary={"all-reduce": times(1, FP32)}),
        ),
    )
}
TOKEN = tuple(case(f"zero-{stage} token", "token", stage) for stage in range(4))
SHARDED = (case("fsdp", "fsdp", None), case("fsdp-every", "fsdp-every", None))


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    stock = tuple(case(name, "stock", stage, ga) for name, (stage, ga) in FP32_CASES.items())
    spec = RunSpec(
        world_size=2,
        global_batch_size=2 * WINDOW,
        steps=1,
        # Rounds nothing, so that DDP and FSDP run in fp32 beside variants whose config says bf16.
        dtype="fp32",
        workload=Workload(kind="file", path=f"{Path(__file__).with_name('seventeen_thousand.py')}:build"),
        variants=(*stock, *(found for found, _ in OTHERS.values()), *TOKEN, *SHARDED),
        timeout_s=180.0,
    )
    return launch(tmp_path_factory.mktemp("counted"), spec)


@pytest.mark.parametrize("name", FP32_CASES)
def test_each_stage_calls_what_deepspeed_was_seen_to_call(counted: Launch, name: str) -> None:
    communication = counted.results[name].communication
    assert communication is not None
    assert counts(communication.counted) == of_stage(*FP32_CASES[name])


@pytest.mark.parametrize("name", OTHERS)
def test_other_settings_call_what_they_were_seen_to_call(counted: Launch, name: str) -> None:
    communication = counted.results[name].communication
    assert communication is not None
    assert counts(communication.counted) == OTHERS[name][1]


@pytest.mark.parametrize("stage", range(4))
def test_token_weighting_adds_one_small_collective_a_step(counted: Launch, stage: int) -> None:
    communication = counted.results[f"zero-{stage} token"].communication
    assert communication is not None
    found, stock = counts(communication.counted), of_stage(stage, 4)
    more = {
        key: (calls - stock.get(key, (0, 0))[0], size - stock.get(key, (0, 0))[1])
        for key, (calls, size) in found.items()
    }
    more = {key: value for key, value in more.items() if value != (0, 0)}
    assert set(stock) <= set(found)
    (((moment, kind), (calls, size)),) = more.items()
    assert (moment, kind, calls) == ("boundary", "all-gather", 1.0)
    assert 0 < size <= 64


def test_fsdp_gathers_parameters_and_reduces_gradients_once_a_window_where_it_is_deferred(counted: Launch) -> None:
    results = [counted.results[name].communication for name in ("fsdp", "fsdp-every")]
    deferred, every = (counts(found.counted) for found in results if found is not None)
    # Two units: the block and the rest.
    assert deferred["boundary", "reduce-scatter"] == every["boundary", "reduce-scatter"] == (2.0, FP32)
    assert ("micro-batch", "reduce-scatter") not in deferred
    assert every["micro-batch", "reduce-scatter"] == (6.0, 3.0 * FP32)
    # The norm of 17 tensors that each rank has a part of: DTensor's own collective.
    assert deferred["step", "all-reduce"] == (1.0, 4.0 * 17)


def test_the_formula_of_every_variant_says_what_is_counted(counted: Launch) -> None:
    for name, result in counted.results.items():
        assert result.communication is not None and result.communication.expected is not None, name
        assert formula_differences(result) == [], name


def test_what_the_comparison_itself_exchanges_is_not_counted(counted: Launch) -> None:
    for name, result in counted.results.items():
        assert result.communication is not None
        total = math.fsum(count.calls for count in result.communication.counted)
        assert total <= 60, name
