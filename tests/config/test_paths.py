"""What a path leads to."""

from __future__ import annotations

from typing import Any

import pytest

from ds_accum.config.paths import NOTHING, mapping_at, value_at

VALUES: dict[str, Any] = {"optimizer": {"type": None, "params": {"betas": [0.9, 0.95]}}, "fp16": True, "0": 1}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((), VALUES),
        (("optimizer", "type"), None),
        (("optimizer", "params", "betas", 1), 0.95),
        (("optimizer", "params", "betas", 2), NOTHING),
        (("optimizer", "params", "betas", -1), NOTHING),
        (("optimizer", "params", "betas", "1"), NOTHING),
        (("fp16", "enabled"), NOTHING),
        ((0,), NOTHING),
    ],
)
def test_a_path_leads_to_a_value_or_nowhere(path: tuple[str | int, ...], value: Any) -> None:
    assert value_at(VALUES, path, NOTHING) is value or value_at(VALUES, path, NOTHING) == value


def test_where_no_object_stands_there_is_an_empty_one() -> None:
    assert mapping_at(VALUES, ("optimizer", "params")) == {"betas": [0.9, 0.95]}
    assert mapping_at(VALUES, ("fp16",)) == mapping_at(VALUES, ("bf16", "x")) == mapping_at([1]) == {}
