"""`ds-accum init`: a fresh config is clean, exact, and overwrites nothing."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from ds_accum.lint.diagnostic import Severity
from ds_accum.lint.linter import lint_text


def test_a_fresh_config_is_printed(ds_accum: Any) -> None:
    finished = ds_accum("init", "--world-size", 8, "--global-batch", 256, "--micro-batch", 4)
    assert (finished.code, finished.errors) == (0, "")
    assert json.loads(finished.output)["zero_optimization"] == {"stage": 2}
    assert '"betas": [0.9, 0.95],\n' in finished.output


@pytest.mark.parametrize(
    ("stage", "precision", "offload", "more"),
    [
        choice
        for choice in itertools.product(
            "0123", ("bf16", "fp16", "fp32"), ("none", "cpu"), ("", "--hf", "--client-optimizer", "--total-steps=100")
        )
        if choice[0] != "0" or (choice[1] != "fp16" and choice[2] == "none")
    ],
)
def test_every_fresh_config_is_free_of_errors_and_warnings(
    ds_accum: Any, stage: str, precision: str, offload: str, more: str
) -> None:
    arguments = ["init", "--world-size", "8", "--stage", stage, "--precision", precision, "--offload", offload]
    finished = ds_accum(*arguments, *filter(None, [more]))
    # The command itself asks the linter for this launch.
    assert finished.code == 0, finished.errors
    found = lint_text(finished.output)
    assert not [item for item in found if item.severity is Severity.ERROR]


def test_an_uneven_batch_is_an_error_with_the_sizes_that_fit(ds_accum: Any) -> None:
    finished = ds_accum("init", "--world-size", 8, "--global-batch", 100)
    assert (finished.code, finished.output) == (2, "")
    assert "global batch 100 is not a multiple of data parallel 8 (remainder 4)" in finished.errors
    assert "change global batch to 96 or 104" in finished.errors


def test_a_file_is_written_and_never_overwritten_without_force(ds_accum: Any, folder: Path) -> None:
    arguments = ["init", "--world-size", "8", "--output-file", "ds_config.json"]
    assert ds_accum(*arguments).code == 0
    before = (folder / "ds_config.json").read_text("utf-8")
    refused = ds_accum(*arguments, "--stage", 3)
    assert refused.code == 2
    assert refused.errors.splitlines() == [
        "error: ds_config.json is there already",
        "help: give another name, or --force to replace it",
    ]
    assert (folder / "ds_config.json").read_text("utf-8") == before
    assert ds_accum(*arguments, "--stage", 3, "--force").code == 0
    assert json.loads((folder / "ds_config.json").read_text("utf-8"))["zero_optimization"]["stage"] == 3


def test_what_trainer_has_to_be_told_is_said_beside_the_config(ds_accum: Any) -> None:
    finished = ds_accum("init", "--world-size", 8, "--hf", "--micro-batch", 4)
    assert json.loads(finished.output)["train_micro_batch_size_per_gpu"] == "auto"
    assert finished.errors.startswith("note: start Trainer with --per_device_train_batch_size 4 ")


def test_a_fresh_config_that_the_linter_refuses_is_our_bug(ds_accum: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from ds_accum.config.starter import Starter

    monkeypatch.setattr(Starter, "config", lambda _: {"train_batch_size": 9})
    finished = ds_accum("init", "--world-size", 8)
    assert (finished.code, finished.output) == (2, "")
    assert "the linter objects to a fresh config: DSA102" in finished.errors
    assert "this is a bug of ds-accum" in finished.errors


def test_what_only_an_older_release_refuses_is_no_bug(ds_accum: Any) -> None:
    finished = ds_accum("init", "--world-size", 8, "--stage", 2, "--deepspeed-version", "0.14.0")
    assert "bug" not in finished.errors


@pytest.mark.parametrize("command", [("init", "--world-size", "8"), ("schema",)])
def test_a_release_that_is_not_known_is_noted(ds_accum: Any, command: tuple[str, ...]) -> None:
    finished = ds_accum(*command, "--deepspeed-version", "0.13.0")
    assert finished.code == 0
    assert finished.errors.startswith("note: DeepSpeed 0.13.0 is older than the oldest release known here; it is ")
    assert ds_accum(*command, "--deepspeed-version", "0.19.8").errors == ""
