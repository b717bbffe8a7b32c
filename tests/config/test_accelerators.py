"""What an accelerator refuses: the table is in order, and an exception is traced to its entries."""

from __future__ import annotations

import pytest

from ds_accum.config.accelerators import ACCELERATOR_LIMITS, AcceleratorLimit, limits_behind
from ds_accum.config.launch import ACCELERATORS
from ds_accum.config.schema import schema_for

LIMITS = [pytest.param(limit, id=".".join(limit.settings[0].path)) for limit in ACCELERATOR_LIMITS]


@pytest.mark.parametrize("limit", LIMITS)
def test_every_setting_of_a_limit_is_a_key_of_the_newest_release(limit: AcceleratorLimit) -> None:
    blocks = schema_for((0, 19, 8)).blocks
    for setting in limit.settings:
        assert setting.path[-1] in blocks[".".join(setting.path[:-1])].keys
        assert all(not isinstance(value, str) or value == value.lower() for value in setting.values)
        assert setting.values or ".".join(setting.path) in blocks


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_holds_on_its_accelerator_and_never_on_cuda(limit: AcceleratorLimit) -> None:
    assert limit.accelerator in ACCELERATORS
    assert limit.holds_on(limit.accelerator) and not limit.holds_on("cuda")
    assert limit.holds_on("xpu") == limit.only_cuda


def test_an_exception_is_traced_to_the_limits_of_one_accelerator() -> None:
    refusal = "AssertionError: GDS currently only supported for CUDA accelerator"
    for accelerator in ("cpu", "npu"):
        (limit,) = limits_behind(refusal, accelerator=accelerator)
        assert limit.settings[0].path == ("aio", "use_gds")
    assert limits_behind(refusal, accelerator="cuda") == ()
    assert limits_behind("AssertionError: something else", accelerator="cpu") == ()
    not_compiled = limits_behind("ValueError: This op had not been implemented on CPU backend.", accelerator="cpu")
    assert len(not_compiled) == 4
    assert limits_behind("ValueError: This op had not been implemented on CPU backend.", accelerator="npu") == ()
