"""A report is where the config asks for it: in the step log, in TensorBoard's event files, in DeepSpeed's CSV files."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

import pytest
from cases import Case
from launch import Answer, launch

from ds_accum.engine.publishing import MONITORED

pytestmark = pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="needs tensorboard")

STAGES = (0, 2)
WINDOWS = 3


def _case(stage: int) -> Case:
    return Case(
        name=f"zero-{stage}",
        stage=stage,
        dtype="fp32",
        windows=(2,) * WINDOWS,
        clipping=0.05,
        config={
            "tensorboard": {"enabled": True, "output_path": "tensorboard", "job_name": "run"},
            "csv_monitor": {"enabled": True, "output_path": "csv", "job_name": "run"},
        },
        block={"log": "logs/steps.jsonl"},
    )


@pytest.fixture(scope="module")
def answers() -> Mapping[str, Answer]:
    return launch(_case(stage).job("reporting:publish_all") for stage in STAGES)


@pytest.mark.parametrize("stage", STAGES)
def test_the_step_log_has_each_report_once_and_goes_on_when_training_does(
    stage: int, answers: Mapping[str, Answer]
) -> None:
    found = answers[f"zero-{stage}"].value()
    assert [line["step"] for line in found["log"]] == [1, 2, 3, 1, 2, 3]
    for line, report in zip(found["log"], found["reports"], strict=True):
        assert {name: line[name] for name in report if name != "samples"} == {
            name: value for name, value in report.items() if name != "samples"
        }


@pytest.mark.parametrize("writer", ["csv", "tensorboard"])
@pytest.mark.parametrize("stage", STAGES)
def test_monitors_get_each_number_against_samples(stage: int, writer: str, answers: Mapping[str, Answer]) -> None:
    found = answers[f"zero-{stage}"].value()
    series: dict[str, Any] = found[writer]
    for name in MONITORED:
        key = f"Train_ds_accum_{name}" if writer == "csv" else f"Train/ds_accum/{name}"
        expected = [[report["samples"], report[name]] for report in found["reports"]]
        points = sorted(series[key])
        assert [samples for samples, _ in points] == sorted(samples for samples, _ in expected)
        # Event files hold float32.
        assert [value for _, value in points] == pytest.approx([value for _, value in sorted(expected)], rel=1e-6)
    skipped = series["Train_ds_accum_skipped_steps" if writer == "csv" else "Train/ds_accum/skipped_steps"]
    assert [value for _, value in skipped] == [0.0] * len(found["reports"])
    # DeepSpeed's own series are still there.
    assert any("lr" in name for name in series)
