"""The engine's benchmark: it runs, and what it counts, which no busy machine can change, is what the README says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from bench_engine import WAYS, extra
from launch import Answer, Job, launch

pytestmark = pytest.mark.engine

CASES = {
    f"z{stage} {dtype}": {"stage": stage, "dtype": dtype, "accumulation": 2}
    for stage, dtype in product(range(4), ("fp32", "bf16"))
}


@pytest.fixture(scope="module")
def answers() -> dict[str, Answer]:
    return launch(
        Job(name=name, function="engine_ranks:measure", arguments=case | {"ways": WAYS, "repeats": 0, "seconds": 0.0})
        for name, case in CASES.items()
    )


@pytest.mark.parametrize("name", CASES)
def test_a_step_has_one_collective_of_64_bytes_more_than_stock_deepspeed(answers: dict[str, Answer], name: str) -> None:
    answers[name].value()
    for counted in answers[name].values:
        assert extra(counted) == "+1 all_gather of 64 bytes"


@pytest.mark.parametrize("name", CASES)
def test_the_same_engine_is_stock_deepspeeds_again_when_ds_accum_is_taken_off_it(
    answers: dict[str, Answer], name: str
) -> None:
    answers[name].value()
    for counted in answers[name].values:
        collectives = counted["collectives"]
        assert collectives["stock"] == collectives["stock again"] != collectives["ds-accum"]


def test_the_benchmark_prints_a_row_a_case_and_whether_the_goal_is_met() -> None:
    run = subprocess.run(
        [
            *(sys.executable, str(Path(__file__).with_name("bench_engine.py")), "--repeats", "3", "--memory", "1"),
            *("--stages", "1", "--accumulation", "1", "--dtypes", "fp32", "--others"),
        ],
        env=os.environ | {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    head, row = run.stdout.splitlines()[:2]
    assert row.startswith("z1 fp32 GA 1 ") and row.removesuffix("| goal missed").count("|") == head.count("|")
    assert re.search(r"^goal .*: (met|missed by z1 fp32 GA 1)", run.stdout, re.MULTILINE)
    assert re.search(r"^z1 \| [\d.]+ \(.*\), [\d.]+ \(.*\)$", run.stdout, re.MULTILINE)
