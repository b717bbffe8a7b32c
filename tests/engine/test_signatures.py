"""Every call that stock DeepSpeed takes, the token-weighted engine takes, by place and by name; what it takes besides is last."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch")
deepspeed = pytest.importorskip("deepspeed")

from ds_accum.engine.token_weighted import TokenWeightedEngine  # noqa: E402

pytestmark = pytest.mark.core

STOCK: Any = deepspeed.DeepSpeedEngine
OVERRIDDEN = sorted(
    name for name, value in vars(TokenWeightedEngine).items() if inspect.isfunction(value) and hasattr(STOCK, name)
)
ADDED = {"backward": ["num_tokens"], "scale": ["num_tokens"]}
P = inspect.Parameter


def _parameters(function: Any) -> dict[str, inspect.Parameter]:
    # DeepSpeed's own decorator says nothing of what it decorates.
    names = function.__code__.co_freevars
    if "func" in names:
        function = function.__closure__[names.index("func")].cell_contents
    return dict(inspect.signature(function).parameters)


def _differences(ours: Any, stock: Any) -> Iterator[str]:
    mine, theirs = ([*_parameters(function).values()] for function in (ours, stock))
    if [parameter.kind for parameter in mine[1:]] == [P.VAR_POSITIONAL, P.VAR_KEYWORD]:
        return  # it passes on whatever it is given
    for place, parameter in enumerate(theirs):
        if place >= len(mine):
            yield f"{parameter.name} is not taken"
        elif (mine[place].name, mine[place].kind) != (parameter.name, parameter.kind):
            yield f"{parameter.name} is {mine[place].name}"
        elif (mine[place].default is P.empty) != (parameter.default is P.empty):
            yield f"{parameter.name} has a default in one of them"
        elif (mine[place].default or None) != (parameter.default or None) and parameter.default is not P.empty:
            yield f"{parameter.name} is {mine[place].default!r} unless it is given, not {parameter.default!r}"


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_an_overridden_method_takes_what_stock_takes(name: str) -> None:
    assert list(_differences(getattr(TokenWeightedEngine, name), getattr(STOCK, name))) == []


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_what_is_added_is_last_and_optional(name: str) -> None:
    mine = _parameters(getattr(TokenWeightedEngine, name)).values()
    stock = _parameters(getattr(STOCK, name))
    added = [one for one in mine if one.name not in stock and one.kind not in (P.VAR_POSITIONAL, P.VAR_KEYWORD)]
    assert [one.name for one in added] == ADDED.get(name, [])
    assert all(one.default is None for one in added)


def test_what_users_call_is_among_them() -> None:
    assert {"forward", "backward", "step", "save_checkpoint", "load_checkpoint", "no_sync"} <= set(OVERRIDDEN)


def test_a_method_that_drops_a_parameter_would_be_seen() -> None:
    def save_checkpoint(
        self: Any, save_dir: Any, tag: Any = None, client_state: Any = None, save_latest: Any = False
    ) -> None: ...

    assert list(_differences(save_checkpoint, STOCK.save_checkpoint)) == [
        "save_latest is False unless it is given, not True",
        "exclude_frozen_parameters is not taken",
    ]
