"""`optimizer_values.json` refuses what the installed optimizers and schedulers refuse, at the same time, and no more."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ds_accum.config.optimizer_values import Moment, ValueKind, kinds_of
from ds_accum.config.schema import newest_version

REPOSITORY = Path(__file__).resolve().parent.parent.parent
DATA = REPOSITORY / "ds_accum" / "config" / "versions" / "optimizer_values.json"
TOOL = REPOSITORY / "tests" / "tools" / "try_optimizer_values.py"

# What a constructor refuses and the data lets pass, with the reason; a list for parameters that take one by group is
# let pass everywhere, since only the script knows how many groups there are.
LENIENT: Mapping[tuple[str, str], str] = {
    ("LBFGS", "max_iter"): "looked at only without max_eval",
    ("SGD", "nesterov"): "depends on momentum and dampening: a rule of its own",
    ("OneCycle", "decay_mom_rate"): "looked at only where the optimizer has betas and cycle_momentum is on",
    ("OneCycle", "cycle_min_mom"): "used only where the optimizer has betas and cycle_momentum is on",
    ("OneCycle", "cycle_max_mom"): "used only where the optimizer has betas and cycle_momentum is on",
    ("LRRangeTest", "lr_range_test_min_lr"): "a list by group",
    ("OneCycle", "cycle_min_lr"): "a list by group",
    ("OneCycle", "cycle_max_lr"): "a list by group",
    ("CyclicLR", "scale_fn"): "a function, which no file can hold",
    ("MultiStepLR", "milestones"): "anything that can be counted",
    ("OneCycleLR", "total_steps"): "null where epochs and steps_per_epoch are given",
    ("OneCycleLR", "pct_start"): "a float, which an integer is not",
    ("OneCycleLR", "base_momentum"): "used only where cycle_momentum is on",
    ("OneCycleLR", "max_momentum"): "used only where cycle_momentum is on",
    ("ReduceLROnPlateau", "min_lr"): "a list by group",
    **{
        (name, "last_epoch"): "other than -1 only with an optimizer that was scheduled before"
        for name in (
            *("ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR"),
            *("LinearLR", "MultiStepLR", "OneCycleLR", "PolynomialLR", "StepLR"),
        )
    },
    **{
        ("Muon", name): "torch's Muon is never built: the name is DeepSpeed's own"
        for name in ("lr", "weight_decay", "momentum", "adjust_lr_fn")
    },
}

Refusals = dict[str, dict[str, dict[str, list[int]]]]


@cache
def tried() -> Refusals:
    """Class -> parameter -> moment -> which of the tool's values were refused then."""
    environment = {**os.environ, "DS_ACCELERATOR": os.environ.get("DS_ACCELERATOR", "cpu")}
    # ninja, which compiles the optimizers of the CPU, lies beside the interpreter.
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', '')}"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(TOOL)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: Refusals = json.loads(done.stdout.splitlines()[-1])
    return found


@cache
def values() -> tuple[Any, ...]:
    """The tool's `VALUES`, read off its source: importing it would import what it tries."""
    for statement in ast.parse(TOOL.read_text("utf-8")).body:
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == "VALUES":
            assert statement.value is not None
            return tuple(eval(compile(ast.Expression(statement.value), str(TOOL), "eval"), {}))
    raise AssertionError("the tool has no VALUES")


def disagreements(refusals: Refusals, moment: Moment) -> Iterator[str]:
    """Where the data refuses more than the class, or, at the start, less."""
    for name, parameters in refusals.items():
        kinds = kinds_of(name, version=newest_version(), moment=moment)
        earlier = kinds_of(name, version=newest_version())
        for parameter, refused in parameters.items():
            # DeepSpeed passes `adam_w_mode` on under the constructor's own name for it.
            key = "adam_w_mode" if parameter == "adamw_mode" else parameter
            for number, value in enumerate(values()):
                theirs = number in refused["start"] or (moment == "first step" and number in refused["first step"])
                ours = key in kinds and not kinds[key].accepts(value)
                by_group = isinstance(value, list) and (kind := earlier.get(key)) is not None and kind.by_group
                if ours and not theirs:
                    yield f"{name}.{parameter}: {value!r} is not refused at {moment}"
                if theirs and not ours and moment == "start" and not by_group and (name, parameter) not in LENIENT:
                    yield f"{name}.{parameter}: {value!r} is refused at {moment}"


@pytest.mark.engine
def test_the_data_refuses_what_the_constructors_refuse() -> None:
    assert list(disagreements(tried(), "start")) == []


@pytest.mark.engine
def test_the_data_refuses_nothing_that_survives_the_first_step() -> None:
    assert list(disagreements(tried(), "first step")) == []


@pytest.mark.engine
def test_every_leniency_is_still_needed() -> None:
    """An entry that excuses nothing hides the next mistake."""
    for name, parameter in LENIENT:
        kind = kinds_of(name, version=newest_version()).get(parameter)
        refused = tried()[name][parameter]["start"]
        assert any(kind is None or kind.accepts(values()[number]) for number in refused), (name, parameter)


def test_a_class_that_checks_otherwise_is_noticed() -> None:
    negative = values().index(-1)
    lax: Refusals = {"SGD": {"lr": {"start": [], "first step": []}}}
    assert "SGD.lr: -1 is not refused at start" in list(disagreements(lax, "start"))
    strict: Refusals = {"SGD": {"maximize": {"start": [negative], "first step": []}}}
    assert list(disagreements(strict, "start")) == ["SGD.maximize: -1 is refused at start"]


def test_every_kind_is_used_and_every_entry_has_one() -> None:
    data = json.loads(DATA.read_text("utf-8"))
    entries = [entry for moment in ("start", "first step") for item in data[moment].values() for entry in item.values()]
    used = {name for entry in entries for name in (entry.values() if isinstance(entry, dict) else [entry])}
    assert used == data["kinds"].keys()


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (ValueKind(type="number"), "a number"),
        (ValueKind(type="number", ge=0), "a number that is at least 0"),
        (ValueKind(type="number", gt=0, le=1), "a number that is greater than 0 and at most 1"),
        (ValueKind(type="integer", ge=1, null=True), "an integer that is at least 1 or null"),
        (ValueKind(type="choice", choices=("a", "b", "c")), '"a", "b" or "c"'),
        (ValueKind(type="off"), "false"),
        (
            ValueKind(type="pair", each=(ValueKind(type="number"), ValueKind(type="number"))),
            "a list of two numbers",
        ),
        (
            ValueKind(type="pair", each=(ValueKind(type="float", lt=1), ValueKind(type="float", lt=1))),
            "a list of two numbers with a decimal point, each less than 1",
        ),
        (
            ValueKind(type="pair", each=(ValueKind(type="number", lt=1), ValueKind(type="number", gt=1))),
            "a list of two numbers, the first less than 1, the second greater than 1",
        ),
    ],
)
def test_a_kind_says_what_it_wants(kind: ValueKind, wanted: str) -> None:
    assert kind.wanted == wanted


def test_an_older_torch_takes_integers_for_floats() -> None:
    betas = kinds_of("AdamW", version=(0, 19, 8))["betas"]
    assert not betas.accepts([0, 0.99]) and betas.accepts([0, 0.99], old_torch=True)
    assert not betas.accepts([0, 1], old_torch=True), "1 is out of bounds whatever it is"


def test_a_warm_up_over_no_step_is_refused_since_0_19_3() -> None:
    for version, accepted in (((0, 19, 2), True), ((0, 19, 3), False)):
        steps = kinds_of("WarmupLR", version=version)["warmup_num_steps"]
        assert steps.accepts(0) is accepted and steps.accepts(10.5) is accepted
        assert not steps.accepts("auto")
