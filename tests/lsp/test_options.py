"""What a client says about the launch."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from ds_accum.config.launch import Launch
from ds_accum.errors import DSAccumError
from ds_accum.lsp.options import OPTIONS, told_by

RELEASE = ((0, 19, 5), "installed")


def test_without_options_the_launch_is_unknown_but_for_the_installed_release() -> None:
    for options in (None, {}, {"worldSize": None}):
        told = told_by(options, release=RELEASE)
        assert told.launches == (Launch(deepspeed_version=(0, 19, 5)),)
        assert (told.version_source, told.given) == ("installed", {})


def test_several_world_sizes_are_several_launches() -> None:
    told = told_by({"worldSize": [64, 8, 8]}, release=RELEASE)
    assert [launch.world_size for launch in told.launches] == [8, 64]
    assert told.given == {"world-size": "worldSize"}


def test_every_option_reaches_its_field() -> None:
    options = {
        "worldSize": 8.0,
        "tensorParallelSize": 2,
        "framework": "hf",
        "clientOptimizer": True,
        "deepspeedVersion": "0.18.5",
        "accelerator": "cpu",
        "engine": "stock",
        "sequenceLength": 4096,
    }
    told = told_by(options, release=RELEASE)
    (launch,) = told.launches
    assert set(told.given.values()) == options.keys() - {"sequenceLength"}
    assert launch == Launch(
        world_size=8,
        tensor_parallel_size=2,
        framework="huggingface",
        client_optimizer=True,
        deepspeed_version=(0, 18, 5),
        accelerator="cpu",
        engine="stock",
        sequence_length=4096,
    )


def test_there_is_an_option_for_every_field_of_a_launch_that_an_editor_can_know() -> None:
    known = {field.name for field in fields(Launch)} - {"hf_arguments", "checkpoint"}
    assert {field for field, _ in OPTIONS.values()} == known


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], "the options must be an object"),
        ({"world_size": 8}, "there is no option world_size"),
        ({"worldSize": 0}, "option worldSize must be a number of at least 1, not 0"),
        ({"worldSize": float("inf")}, "option worldSize must be a number of at least 1, not inf"),
        ({"worldSize": True}, "option worldSize must be a number of at least 1"),
        ({"worldSize": []}, "option worldSize must be a number of ranks"),
        ({"worldSize": "8"}, "option worldSize must be a number of at least 1, not '8'"),
        ({"framework": "trl"}, "option framework must be one of raw, huggingface"),
        ({"accelerator": "tpu"}, "option accelerator must be one of cuda, cpu"),
        ({"framework": ["raw"]}, "option framework must be one of raw, huggingface"),
        ({"clientOptimizer": "yes"}, "option clientOptimizer must be true or false"),
        ({"deepspeedVersion": 0.19}, "option deepspeedVersion must be a release in quotes"),
        ({"deepspeedVersion": "newest"}, "option deepspeedVersion can't be read"),
        ({"worldSize": 8, "tensorParallelSize": 3}, "world 8 is not a multiple of tensor 3"),
    ],
)
def test_a_wrong_option_is_an_error(options: Any, sentence: str) -> None:
    with pytest.raises(DSAccumError, match=sentence.replace("(", r"\(")):
        told_by(options, release=RELEASE)
