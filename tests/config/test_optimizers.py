"""`optimizers.json` is what the installed DeepSpeed and torch can build, and the choice of a class is DeepSpeed's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ds_accum.config.model import DeepSpeedConfig
from ds_accum.config.optimizers import (
    NOT_FROM_A_FILE,
    OptimizerChoice,
    deepspeed_schedulers,
    named_optimizers,
    optimizer_removed_in,
    other_names,
    resolve_optimizer,
    scheduler_signature,
    torch_optimizers,
    torch_schedulers,
)
from ds_accum.config.schema import Version, newest_version

REPOSITORY = Path(__file__).resolve().parent.parent.parent
DATA = REPOSITORY / "ds_accum" / "config" / "versions" / "optimizers.json"
HISTORY = DATA.with_name("history.json")
TOOL = REPOSITORY / "tests" / "tools" / "read_optimizer_signatures.py"

CPU = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}
ZENFLOW = {"zero_optimization": {**CPU["zero_optimization"], "zenflow": {}}}


@cache
def installed() -> dict[str, Any]:
    """What the installed DeepSpeed and torch can build, in a process of its own; they log to the same stream."""
    environment = {**os.environ, "DS_ACCELERATOR": os.environ.get("DS_ACCELERATOR", "cpu")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(TOOL)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    described: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return described


def differences(held: Any, theirs: Any, path: str = "") -> list[str]:
    """What the data has and the package has not, or the other way round, one line each."""
    if isinstance(held, dict) and isinstance(theirs, dict):
        return [
            line
            for key in sorted(held.keys() | theirs.keys())
            for line in (
                differences(held[key], theirs[key], f"{path}.{key}".lstrip("."))
                if key in held and key in theirs
                else [f"{path}.{key}".lstrip(".") + f": only in the {'data' if key in held else 'package'}"]
            )
        ]
    return [] if held == theirs else [f"{path}: {held!r} in the data, {theirs!r} in the package"]


# --- the data against the packages ------------------------------------------------------------------------------------


@pytest.mark.engine
def test_every_optimizer_and_scheduler_takes_what_the_installed_one_takes() -> None:
    assert differences(json.loads(DATA.read_text("utf-8")), installed()) == []


def test_a_parameter_that_moved_is_named() -> None:
    held = json.loads(DATA.read_text("utf-8"))
    theirs = json.loads(DATA.read_text("utf-8"))
    theirs["optimizers"]["FusedAdam"]["optional"].remove("amsgrad")
    del theirs["torch_schedulers"]["StepLR"]
    found = differences(held, theirs)
    assert len(found) == 2
    assert found[0].startswith("optimizers.FusedAdam.optional: [")
    assert found[1] == "torch_schedulers.StepLR: only in the data"


def test_the_names_are_those_of_the_newest_release_in_the_history() -> None:
    assert named_optimizers(newest_version()) == set(json.loads(HISTORY.read_text("utf-8"))["optimizers"]["newest"])


# --- the names --------------------------------------------------------------------------------------------------------


def test_muon_came_with_0_17_6_and_the_one_bit_optimizers_went_with_0_19_7() -> None:
    one_bit = {"onebitadam", "onebitlamb", "zerooneadam"}
    assert "muon" in named_optimizers((0, 17, 6)) and "muon" not in named_optimizers((0, 17, 5))
    assert one_bit <= named_optimizers((0, 19, 6)) and not one_bit & named_optimizers((0, 19, 7))
    assert optimizer_removed_in("OneBitAdam", (0, 19, 8)) == "0.19.7"
    assert optimizer_removed_in("OneBitAdam", (0, 19, 6)) is None
    assert optimizer_removed_in("AdamW", (0, 19, 8)) is None


def test_what_else_stands_beside_the_optimizers_and_schedulers_is_told_apart() -> None:
    assert other_names("optimizers")["lr_scheduler"] == "uncallable"
    assert other_names("schedulers")["math"] == "uncallable"
    assert other_names("schedulers")["get_torch_optimizer"] == "callable"
    assert not other_names("optimizers").keys() & set(torch_optimizers())
    assert not other_names("schedulers").keys() & {*deepspeed_schedulers(), *torch_schedulers()}


def test_every_scheduler_has_a_signature_and_no_other_name_has() -> None:
    for name in (*deepspeed_schedulers(), *torch_schedulers()):
        assert scheduler_signature(name) is not None
    assert scheduler_signature("math") is None
    assert set(torch_schedulers()) >= NOT_FROM_A_FILE.keys()


# --- the choice -------------------------------------------------------------------------------------------------------


def choice_of(
    kind: str, params: dict[str, Any] | None = None, *, version: Version = (0, 19, 8), **others: Any
) -> OptimizerChoice:
    config = DeepSpeedConfig.read({"optimizer": {"type": kind, "params": params or {}}, **others}, version=version)
    choice = resolve_optimizer(config)
    assert choice is not None
    return choice


@pytest.mark.parametrize(
    ("kind", "params", "others", "name"),
    [
        ("Adam", {}, {}, "FusedAdam"),
        ("ADAMW", {}, {}, "FusedAdam"),
        ("AdamW", {}, CPU, "DeepSpeedCPUAdam"),
        ("AdamW", {}, {"zero_optimization": {"cpu_offload": True}}, "DeepSpeedCPUAdam"),
        ("AdamW", {}, ZENFLOW, "ZenFlowCPUAdam"),
        ("Adam", {"torch_adam": True}, {}, "torch.optim.AdamW"),
        ("Adam", {"torch_adam": "false"}, CPU, "torch.optim.AdamW"),
        ("Adam", {"torch_adam": True, "adam_w_mode": False}, {}, "torch.optim.Adam"),
        ("AdamW", {"torch_adam": True, "adam_w_mode": False}, {}, "torch.optim.AdamW"),
        ("Adagrad", {}, {}, "torch.optim.Adagrad"),
        ("Adagrad", {}, CPU, "DeepSpeedCPUAdagrad"),
        ("lion", {}, {}, "FusedLion"),
        ("Lion", {}, CPU, "DeepSpeedCPULion"),
        ("Lamb", {}, CPU, "FusedLamb"),
        ("Muon", {}, CPU, "MuonWithAuxAdam"),
        ("SGD", {}, CPU, "torch.optim.SGD"),
    ],
)
def test_the_class_depends_on_the_name_the_offload_and_two_switches(
    kind: str, params: dict[str, Any], others: dict[str, Any], name: str
) -> None:
    assert choice_of(kind, params, **others).full_name == name


def test_no_class_is_named_where_there_is_none_or_a_refused_value_decides() -> None:
    for optimizer in ({"type": "sgd"}, {"type": None}, {"type": ["SGD"]}, {}, {"params": {"lr": 1}}):
        assert resolve_optimizer(DeepSpeedConfig.read({"optimizer": optimizer}, version=(0, 19, 8))) is None
    refused = {"optimizer": {"type": "Adam"}, "zero_optimization": {"offload_optimizer": {"device": "gpu"}}}
    assert resolve_optimizer(DeepSpeedConfig.read(refused, version=(0, 19, 8))) is None


def test_deepspeed_keeps_its_own_switches_from_the_constructor() -> None:
    fused = choice_of("Adam")
    assert fused.parameters is not None
    assert {"torch_adam", "adam_w_mode", "fp32_optimizer_states"} == fused.kept_back
    assert fused.kept_back <= fused.parameters
    assert "foreach" not in fused.parameters
    # On the CPU the mode reaches the kernel, unless the name AdamW overrides it; DeepSpeed passes the keyword itself.
    for kind, kept_back in (("Adam", False), ("AdamW", True)):
        offloaded = choice_of(kind, **CPU)
        assert offloaded.parameters is not None
        assert ("adam_w_mode" in offloaded.kept_back) is kept_back
        assert "adam_w_mode" in offloaded.parameters and "adamw_mode" not in offloaded.parameters


def test_fp32_optimizer_states_was_for_the_cpu_alone_before_0_19_6() -> None:
    for others, taken in (({}, False), (CPU, True)):
        parameters = choice_of("Adam", version=(0, 19, 5), **others).parameters
        assert parameters is not None and ("fp32_optimizer_states" in parameters) is taken


def test_muon_takes_any_key_and_nothing_is_known_of_another_packages_classes() -> None:
    assert choice_of("Muon").parameters is None and choice_of("Muon").is_tested_with_zero is True
    assert choice_of("MuAdam").parameters is None and choice_of("MuAdam").is_tested_with_zero is None
    assert choice_of("OneBitAdam", version=(0, 19, 6)).parameters is None


def test_zero_knows_adam_adagrad_lion_and_muon() -> None:
    for kind in ("Adam", "AdamW", "Adagrad", "Lion", "Muon"):
        assert choice_of(kind).is_tested_with_zero and choice_of(kind, **CPU).is_tested_with_zero
    for kind in ("SGD", "Lamb", "RMSprop", "Adafactor"):
        assert choice_of(kind).is_tested_with_zero is False
    assert choice_of("AdamW", **ZENFLOW).is_tested_with_zero
    assert not choice_of("AdamW", version=(0, 19, 2), **ZENFLOW).is_tested_with_zero
