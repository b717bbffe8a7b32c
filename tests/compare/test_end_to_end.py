"""One small comparison, really trained: what the report says of ZeRO 0 and 2, in stock form and weighted by tokens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.engine

NAMES = ("zero-0 stock", "zero-0 token", "zero-2 stock", "zero-2 token", "single")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """report.json of two ranks and two steps, with the memory of no variant."""
    folder = tmp_path_factory.mktemp("comparison")
    sizes = ("--layers", "1", "--width", "16")
    return compared(folder, "--stages", "0,2", "--baselines", "single", "--steps", "2", *sizes)


def compared(folder: Path, *arguments: str) -> Any:
    """report.json of a comparison without memory, on the CPU, in a working directory."""
    done = subprocess.run(
        [sys.executable, "-m", "ds_accum", "compare", *arguments, "--no-memory", "--device", "cpu"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert not list(folder.glob("ds-accum-compare-*"))
    assert (folder / "comparison/report.html").stat().st_size > 10_000
    return json.loads((folder / "comparison/report.json").read_text("utf-8"))


def test_every_variant_is_done(report: Any) -> None:
    assert tuple(result["name"] for result in report["results"]) == NAMES
    assert {result["status"] for result in report["results"]} == {"done"}
    assert report["parameters"] > 1000


def test_token_variants_have_the_truth_and_stock_ones_visibly_not(report: Any) -> None:
    for result in report["results"]:
        parity = result["parity"]
        if "token" in result["name"]:
            assert parity["largest_error"] <= parity["tolerance"]
            assert parity["first_difference"] is None
        elif "stock" in result["name"]:
            assert parity["largest_error"] > 1000 * parity["tolerance"]
            assert parity["first_difference"]["step"] == 1


def test_every_variant_has_seen_the_same_tokens(report: Any) -> None:
    counts = {tuple(step["num_tokens"] for step in result["parity"]["steps"]) for result in report["results"]}
    assert len(counts) == 1 and all(count > 16 for count in counts.pop())


def test_what_was_counted_is_what_the_formulas_say(report: Any) -> None:
    for result in report["results"]:
        if result["name"] != "single":
            communication = result["communication"]
            assert communication["expected"], result["name"]

            def key(count: Any) -> Any:
                return (count["kind"], count["moment"], count["calls"], count["bytes"])

            assert sorted(map(key, communication["counted"])) == sorted(map(key, communication["expected"]))


def test_zero_2_reduces_in_every_backward_and_zero_0_once(report: Any) -> None:
    def reductions(name: str) -> float:
        communication = next(result["communication"] for result in report["results"] if result["name"] == name)
        large = [count for count in communication["counted"] if count["kind"] == "all-reduce"]
        return sum(count["calls"] for count in large if count["moment"] != "step")  # type: ignore[no-any-return]

    assert (reductions("zero-0 stock"), reductions("zero-2 stock")) == (1, 4)


def test_the_workload_of_the_readme_is_trained(tmp_path: Path) -> None:
    readme = (REPOSITORY / "README.md").read_text("utf-8")
    (tmp_path / "train.py").write_text(readme.partition("<!-- workload: train.py -->\n```py\n")[2].partition("```")[0])
    arguments = ("--stages", "2", "--engines", "token", "--baselines", "single", "--steps", "2")
    report = compared(tmp_path, "--workload", "train.py:build", *arguments)
    assert report["parameters"] == 8 * 4 + 4
    token = report["results"][0]["parity"]
    assert token["largest_error"] <= token["tolerance"]
