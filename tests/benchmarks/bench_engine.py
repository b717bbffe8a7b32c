"""What ds-accum's engine costs beside stock DeepSpeed: paired ratios within one process group, medians and intervals.

    python tests/benchmarks/bench_engine.py [--repeats 100] [--stages 0,1,2,3] [--accumulation 1,4,16] [--dtypes fp32,bf16]
                                            [--seconds 0.5] [--others] [--memory 5]

Two ranks on the CPU, and one engine that is each way's by turns, so that a busy machine slows them alike and all find
the same memory; the ratio of each pair is taken, then the median of the ratios with its 95 % interval (from the order
statistics, which assume nothing). In the same run, stock DeepSpeed a second time: its ratio to the first shows what the
measurement itself can tell, as does the time that is added in milliseconds a step. Last, the CPU time of ds-accum's own
code alone, taken where it runs: no difference of two long times; and page faults: what an engine leaves in the heap can
cost the model the memory that its caches hold, and that time is in nobody's own code. A micro-batch takes at least 0.1
seconds: a real one does, and what ds-accum does for it takes the same time whatever its size. With `--others` also a
pass over all gradients, as Megatron weights them, and a gather of counts in each micro-batch, as Hugging Face's Trainer
does. CPU time and page faults are the main thread's.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests" / "engine"), str(REPOSITORY / "tests" / "benchmarks")]

from launch import Job, launch  # noqa: E402

WAYS = ["stock", "ds-accum", "stock again"]
OTHERS = ["a pass over gradients", "a count gathered per micro-batch"]
GOAL_MEDIAN, GOAL_INTERVAL = 1.01, 1.03
LEAST_SECONDS = 0.1
"""Of a micro-batch."""


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Median, and the bounds of its 95 % interval: the order statistics n/2 -+ 0.98 sqrt(n) (binomial)."""
    ordered = sorted(ratios)
    margin = math.ceil(0.98 * math.sqrt(len(ordered)))
    middle = len(ordered) // 2
    low, high = max(0, middle - margin), min(len(ordered) - 1, middle + margin)
    return statistics.median(ordered), ordered[low], ordered[high]


def row(case: dict, answer: dict) -> tuple[str, bool]:
    """A line of the table, and whether the goal is met."""
    samples = answer["samples"]
    stock = samples["stock"]
    cells = [
        f"z{case['stage']} {case['dtype']} GA {case['accumulation']:<2}",
        f"{statistics.median(wall for wall, _, _ in stock):6.3f}",
    ]
    met = True
    for name in case["ways"][1:]:
        pairs = list(zip(samples[name], stock, strict=True))
        cpu = interval([ours[1] / theirs[1] for ours, theirs in pairs])
        wall = interval([ours[0] / theirs[0] for ours, theirs in pairs])
        cells.append("{:.3f} ({:.3f}-{:.3f})".format(*cpu))
        added = statistics.median(ours[1] - theirs[1] for ours, theirs in pairs)
        cells.append(f"{wall[0]:.3f} | {1000 * added:+.1f}")
        if name == "ds-accum":
            met = cpu[0] <= GOAL_MEDIAN and cpu[2] < GOAL_INTERVAL
    own = statistics.median(answer["own"])
    cells.append(f"{1000 * own:.2f} ms = {own / statistics.median(cpu for _, cpu, _ in stock):.2%}")
    cells.append(", ".join(f"{statistics.median(faults for _, _, faults in samples[name]):.0f}" for name in WAYS[:2]))
    return " | ".join(cells), met


def extra(answer: dict) -> str:
    """The collectives that ds-accum adds, with their bytes."""
    stock, ours = answer["collectives"]["stock"], answer["collectives"]["ds-accum"]
    names = sorted(name for name in {*stock, *ours} if not name.endswith("bytes"))
    return ", ".join(
        f"{ours.get(name, 0) - stock.get(name, 0):+d} {name} of "
        f"{ours.get(f'{name} bytes', 0) - stock.get(f'{name} bytes', 0)} bytes"
        for name in names
        if ours.get(name, 0) != stock.get(name, 0)
    )


def measure_time(options: argparse.Namespace, stages: list[int]) -> list[str]:
    """Prints a line a case; returns those that miss the goal."""
    ways = WAYS + OTHERS if options.others else WAYS
    print(
        "case | stock s",
        *(f"{way}: CPU | wall | added ms" for way in ways[1:]),
        "own code",
        "page faults: stock, ds-accum",
        "extra collectives a step",
        sep=" | ",
    )
    missed = []
    for stage in stages:
        for dtype in options.dtypes.split(","):
            for accumulation in map(int, options.accumulation.split(",")):
                seconds = max(options.seconds, LEAST_SECONDS * accumulation)
                case = {"stage": stage, "dtype": dtype, "accumulation": accumulation, "ways": ways}
                case |= {"repeats": options.repeats, "seconds": seconds}
                # Twice the time that the windows should take, and some for the search of their length.
                timeout = 600 + 2 * seconds * options.repeats * len(ways)
                job = Job(name="case", function="engine_ranks:measure", arguments=case, timeout=timeout)
                answer = launch([job], timeout=timeout + 100)["case"].value()
                line, met = row(case, answer)
                print(line, "|", extra(answer) or "no collective", "" if met else "| goal missed", flush=True)
                if not met:
                    missed.append(line.split(" |")[0])
    return missed


def measure_memory(stages: list[int], processes: int) -> None:
    """Prints a line a stage: medians over processes that have trained one way alone."""
    print("\npeak memory over the start of the process, MB, bf16, GA 4: stock, ds-accum (lowest to highest)")
    for stage in stages:
        jobs = [
            Job(name=f"{way} {number}", function="engine_ranks:peak_memory", ranks=2,
                arguments={"stage": stage, "dtype": "bf16", "accumulation": 4, "ours": way == "ds-accum"})
            for number in range(processes) for way in WAYS[:2]
        ]  # fmt: skip
        answers = launch(jobs)
        cells = []
        for way in WAYS[:2]:
            peaks = sorted(answers[f"{way} {number}"].value() / 1e6 for number in range(processes))
            cells.append(f"{statistics.median(peaks):.1f} ({peaks[0]:.1f}-{peaks[-1]:.1f})")
        print(f"z{stage} | " + ", ".join(cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=100, help="windows of each way; 0 measures no time")
    parser.add_argument(
        "--seconds", type=float, default=0.5, help="how long a stock window takes at least; 0.1 a micro-batch"
    )
    for name, default in (("stages", "0,1,2,3"), ("accumulation", "1,4,16"), ("dtypes", "fp32,bf16")):
        parser.add_argument(f"--{name}", default=default)
    parser.add_argument("--others", action="store_true", help="beside it, the ways of Megatron and of Hugging Face")
    parser.add_argument("--memory", type=int, default=5, help="processes of each way; 0 measures no memory")
    options = parser.parse_args()
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    stages = [int(stage) for stage in options.stages.split(",")]
    if options.repeats:
        missed = measure_time(options, stages)
        print(
            f"\ngoal (CPU: median at most {GOAL_MEDIAN}, interval below {GOAL_INTERVAL}): "
            + ("missed by " + ", ".join(missed) if missed else "met")
        )
    if options.memory:
        measure_memory(stages, options.memory)


if __name__ == "__main__":
    main()
