"""How a launch ends that goes wrong: with a code, a sentence, and what was finished."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from worker_runs import REPOSITORY, launch, start_ranks, variant, wait_for

from ds_accum.compare.spec import RunSpec, Workload


def spec_of(function: str, steps: int = 3) -> RunSpec:
    return RunSpec(
        world_size=2,
        global_batch_size=16,
        steps=steps,
        workload=Workload(kind="file", path=f"{Path(__file__).with_name('parting_ranks.py')}:{function}"),
        variants=(variant("ddp"), variant("stock", 1)),
        timeout_s=60.0,
    )


def test_a_rank_that_fails_alone_ends_the_launch_and_says_why(tmp_path: Path) -> None:
    started = time.monotonic()
    found = launch(tmp_path, spec_of("fails_on_one_rank"))
    assert found.codes[1] == 1 and found.codes[0] != 0
    assert "ValueError: only rank 1 has had enough" in found.errors[1]
    assert "finished" not in {event["event"] for event in found.events}
    # Far less than the time after which a launch without progress is given up.
    assert time.monotonic() - started < 120


def test_a_failure_on_all_ranks_is_that_of_the_variant_alone(tmp_path: Path) -> None:
    found = launch(tmp_path, spec_of("fails_everywhere"))
    assert found.results == {}
    assert found.failed == dict.fromkeys(("ddp", "zero-1 stock"), "ValueError: no rank likes this")
    assert found.events[-1] == {"event": "finished"}


def test_an_interrupted_launch_leaves_the_steps_that_it_did(tmp_path: Path) -> None:
    ranks = start_ranks(tmp_path, spec_of("takes_long", steps=50), "parity")
    events = tmp_path / "events.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and (not events.exists() or '"done": 2' not in events.read_text("utf-8")):
        time.sleep(0.1)
    for process in ranks:
        process.send_signal(signal.SIGTERM)
    found = wait_for(tmp_path, ranks, 60)
    assert 130 in found.codes and 0 not in found.codes
    # Another variant is first in every step, so one of them may have done one more.
    steps = []
    for result in found.reported.values():
        assert result.status == "unfinished" and result.parity is not None
        steps.append(len(result.parity.steps))
    assert len(steps) == 2 and 1 <= min(steps) <= max(steps) < 50


def test_killing_a_rank_ends_the_others(tmp_path: Path) -> None:
    ranks = start_ranks(tmp_path, spec_of("takes_long", steps=50), "parity")
    events = tmp_path / "events.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and (not events.exists() or '"done": 1' not in events.read_text("utf-8")):
        time.sleep(0.1)
    ranks[1].kill()
    found = wait_for(tmp_path, ranks, 90)
    assert found.codes == (1, -signal.SIGKILL)
    assert "OutOfStepError: " in found.errors[0]


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (None, "UsageError: can't read"),
        ({"kind": "parity"}, "is not the job of a launch"),
        (
            {"kind": "parity", "spec": {"world_size": 1, "global_batch_size": 1, "steps": 1}, "variants": ["zero-9"]},
            "variants that its spec does not have: zero-9",
        ),
    ],
)
def test_a_folder_without_a_job_is_one_sentence(tmp_path: Path, job: object, said: str) -> None:
    if job is not None:
        (tmp_path / "job.json").write_text(json.dumps(job), "utf-8")
    ended = subprocess.run(
        [sys.executable, "-m", "ds_accum.compare.worker", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert said in ended.stderr and "Traceback" not in ended.stderr
    assert ended.stderr.startswith("UsageError: ")
