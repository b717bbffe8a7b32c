"""The demonstration that `bin/demo` runs: stock DeepSpeed is far from the exact answer, ds-accum is on it."""

from __future__ import annotations

import re

import pytest
from commands import output_of_python

AWAY = re.compile(r"^  (stock DeepSpeed|ds-accum) +([\d.]+)% +([\d.]+)%$", re.MULTILINE)


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What it prints in less than two minutes."""
    folder = tmp_path_factory.mktemp("demo")
    return output_of_python(["-m", "ds_accum.engine.demo"], folder=folder, timeout=400).printed


def test_ds_accum_ends_on_the_exact_answer_and_stock_deepspeed_far_from_it(printed: str) -> None:
    away = {name: (float(first), float(last)) for name, first, last in AWAY.findall(printed)}
    assert set(away) == {"stock DeepSpeed", "ds-accum"}
    assert max(away["ds-accum"]) < 0.01
    assert min(away["stock DeepSpeed"]) > 10
