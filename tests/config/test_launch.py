"""The inputs of a verdict."""

from __future__ import annotations

import pytest

from ds_accum.config.launch import Launch
from ds_accum.config.schema import newest_version
from ds_accum.errors import LayoutError


def test_without_a_world_size_there_is_no_layout() -> None:
    assert Launch(tensor_parallel_size=2).layout() is None


def test_the_layout_is_that_of_the_degrees() -> None:
    layout = Launch(world_size=16, tensor_parallel_size=2, context_parallel_size=2).layout()
    assert layout is not None
    assert (layout.data_parallel_size, layout.model_parallel_size) == (4, 4)


def test_degrees_that_do_not_divide_the_world_are_refused_with_the_equation() -> None:
    with pytest.raises(LayoutError, match="world 12 is not a multiple of tensor 2 x pipeline 4 = 8"):
        Launch(world_size=12, tensor_parallel_size=2, pipeline_parallel_size=4).layout()


def test_the_release_is_the_newest_known_one_unless_given() -> None:
    assert Launch().version == newest_version()
    assert Launch(deepspeed_version=(0, 16, 4)).version == (0, 16, 4)
