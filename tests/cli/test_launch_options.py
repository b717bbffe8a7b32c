"""Which DeepSpeed is judged for, and what the summary says about where that comes from."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from ds_accum.cli.launch_options import LaunchOptions
from ds_accum.config.launch import Launch
from ds_accum.config.schema import newest_version

_NOTHING_GIVEN = LaunchOptions(
    **{
        **{field.name: None for field in fields(LaunchOptions)},
        **{f"{name}_parallel_size": 1 for name in ("tensor", "pipeline", "context", "sequence", "expert")},
        "accelerator": "cuda",
    }
)


@pytest.mark.parametrize(
    ("given", "installed", "expected"),
    [
        ("0.18.3", "0.19.8", ((0, 18, 3), "given")),
        ("v0.19", None, ((0, 19, 0), "given")),
        (None, "0.19.5+cpu", ((0, 19, 5), "installed")),
        (None, None, (newest_version(), "the newest known")),
        (None, "unknown", (newest_version(), "the newest known")),
    ],
)
def test_the_release_is_the_given_else_the_installed_else_the_newest_known(
    monkeypatch: pytest.MonkeyPatch, given: str | None, installed: str | None, expected: tuple[object, str]
) -> None:
    monkeypatch.setattr("ds_accum.cli.installed_deepspeed.installed_deepspeed", lambda: installed)
    assert replace(_NOTHING_GIVEN, deepspeed_version=given).version() == expected


def test_without_options_the_launch_is_the_default_one() -> None:
    assert _NOTHING_GIVEN.launches((0, 19, 8)) == [Launch(deepspeed_version=(0, 19, 8))]


def test_every_option_reaches_the_launch(tmp_path: Path) -> None:
    (tmp_path / "mp_rank_00_model_states.pt").touch()
    options = replace(
        _NOTHING_GIVEN,
        world_size=(16, 32),
        tensor_parallel_size=2,
        pipeline_parallel_size=2,
        context_parallel_size=2,
        sequence_parallel_size=2,
        expert_parallel_size=4,
        framework="hf",
        client_optimizer="yes",
        client_scheduler="no",
        engine="ds-accum",
        accelerator="cpu",
        sequence_length=4096,
        hf_arg=("bf16=true",),
        resume=tmp_path,
    )
    launch = Launch(
        world_size=16,
        tensor_parallel_size=2,
        pipeline_parallel_size=2,
        context_parallel_size=2,
        sequence_parallel_size=2,
        expert_parallel_size=4,
        deepspeed_version=(0, 19, 8),
        framework="huggingface",
        client_optimizer=True,
        client_scheduler=False,
        engine="ds-accum",
        accelerator="cpu",
        sequence_length=4096,
    )
    launches = options.launches((0, 19, 8))
    arguments = launches[0].hf_arguments
    assert arguments is not None and arguments.given == {"bf16": True}
    launch = replace(launch, hf_arguments=arguments, checkpoint=launches[0].checkpoint)
    assert launches == [launch, replace(launch, world_size=32)]
    assert all(getattr(launch, field.name) != field.default for field in fields(Launch))


@pytest.mark.engine
def test_the_accelerators_are_deepspeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    from deepspeed.accelerator.real_accelerator import SUPPORTED_ACCELERATOR_LIST

    from ds_accum.cli.launch_options import ACCELERATORS

    assert set(SUPPORTED_ACCELERATOR_LIST) <= set(ACCELERATORS)
