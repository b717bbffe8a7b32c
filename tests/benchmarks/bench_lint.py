"""How long `ds-accum lint` takes, beside what a user could compare it with: medians of fresh processes, in one run.

    python tests/benchmarks/bench_lint.py [--repeats 15]

The commands take turns, so that a busy machine slows all of them alike; what counts are the ratios. check-jsonschema
and DeepSpeed's rows are left out where they are not installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
CONFIG = REPOSITORY / "configs" / "zero2.json"

MINIMAL_CLICK = """
import click

@click.group()
def main() -> None:
    "A minimal program."

@main.command()
@click.argument("paths", nargs=-1)
def lint(paths: tuple[str, ...]) -> None:
    "Lint."

main()
"""

DEEPSPEED = "import sys; from deepspeed.runtime.config import DeepSpeedConfig; DeepSpeedConfig(sys.argv[1])"

GOALS = (
    ("ds-accum lint", "check-jsonschema", 0.75),
    ("ds-accum lint", "DeepSpeedConfig", 1 / 15),
    ("ds-accum --help", "minimal click --help", 1.3),
)


def commands(folder: Path) -> dict[str, list[str]]:
    """Name -> command line, for everything that is installed here."""
    program = folder / "minimal.py"
    program.write_text(MINIMAL_CLICK, encoding="utf-8")
    schema = folder / "schema.json"
    schema.write_text(json.dumps({"type": "object", "properties": {"fp16": {"type": "object"}}}), encoding="utf-8")
    python = sys.executable
    found = {
        "bare Python": [python, "-c", "pass"],
        "minimal click --help": [python, str(program), "--help"],
        "ds-accum --help": [python, "-m", "ds_accum", "--help"],
        "ds-accum lint": [python, "-m", "ds_accum", "lint", str(CONFIG)],
    }
    checker = shutil.which("check-jsonschema", path=str(Path(python).parent)) or shutil.which("check-jsonschema")
    if checker is not None:
        found["check-jsonschema"] = [checker, "--schemafile", str(schema), str(CONFIG)]
    if importlib.util.find_spec("deepspeed") is not None:
        found["DeepSpeedConfig"] = [python, "-c", DEEPSPEED, str(CONFIG)]
    return found


def seconds(command: list[str], environment: dict[str, str]) -> float:
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=REPOSITORY, timeout=300)
    elapsed = time.perf_counter() - start
    if done.returncode != 0:
        raise SystemExit(f"{command} failed:\n{done.stdout}{done.stderr}")
    return elapsed


def many_files(folder: Path, count: int) -> list[Path]:
    """`count` files of a corpus-like size: the repository's configs, each with another batch size."""
    configs = [json.loads(path.read_text("utf-8")) for path in sorted((REPOSITORY / "configs").glob("*.json"))]
    folder.mkdir()
    for number in range(count):
        values = dict(configs[number % len(configs)])
        values["train_micro_batch_size_per_gpu"] = number + 1
        (folder / f"{number:04}.json").write_text(json.dumps(values, indent=2), encoding="utf-8")
    return sorted(folder.iterdir())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=15)
    repeats = parser.parse_args().repeats
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "PYTHONPATH": str(REPOSITORY)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = commands(folder)
        for command in lines.values():
            seconds(command, environment)  # write the bytecode, fill the file cache
        times: dict[str, list[float]] = {label: [] for label in lines}
        for _ in range(repeats):
            for label, command in lines.items():
                times[label].append(seconds(command, environment))
        files = many_files(folder / "many", 1000)
        bytes_each = round(statistics.mean(path.stat().st_size for path in files))
        command = [sys.executable, "-m", "ds_accum", "lint", "--world-size", "8", str(folder / "many")]
        many = statistics.median(seconds(command, environment) for _ in range(3))

    medians = {label: statistics.median(measured) for label, measured in times.items()}
    print(f"median of {repeats} fresh processes, Python {sys.version.split()[0]}")
    for label, measured in times.items():
        low, high = min(measured), max(measured)
        print(f"  {label:22} {medians[label] * 1000:7.0f} ms   ({low * 1000:.0f} to {high * 1000:.0f})")
    print(f"  {'1,000 files':22} {many * 1000:7.0f} ms   ({bytes_each} bytes each; goal: under 2000)")
    print("ratios")
    for ours, other, goal in GOALS:
        if other in medians:
            ratio = medians[ours] / medians[other]
            verdict = "met" if ratio <= goal else "MISSED"
            print(f"  {ours} / {other} = {ratio:.3f}   (goal: at most {goal:.3f}, {verdict})")


if __name__ == "__main__":
    main()
