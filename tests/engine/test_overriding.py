"""Attributes replaced for as long as a block runs are afterwards exactly what they were."""

from __future__ import annotations

import pytest

from ds_accum.engine.overriding import overriding


class Thing:
    shared = "class"

    def __init__(self) -> None:
        self.own = "instance"

    def method(self) -> str:
        return "method"


def test_values_hold_inside_and_are_what_they_were_outside() -> None:
    thing = Thing()
    with overriding(thing, own=1, shared=2, new=3, method=lambda: "other"):
        assert (thing.own, thing.shared, thing.method()) == (1, 2, "other")
        assert vars(thing)["new"] == 3
    assert vars(thing) == {"own": "instance"}
    assert (thing.shared, thing.method()) == ("class", "method")


def test_an_error_inside_leaves_nothing_behind() -> None:
    thing = Thing()
    with pytest.raises(KeyError), overriding(thing, own=1, shared=2):
        raise KeyError
    assert vars(thing) == {"own": "instance"}


def test_none_is_a_value_like_any_other() -> None:
    thing = Thing()
    thing.own = None  # type: ignore[assignment]
    with overriding(thing, own=1):
        pass
    assert thing.own is None


def test_what_the_block_removed_or_set_itself_does_not_matter() -> None:
    thing = Thing()
    with overriding(thing, own=1, shared=2):
        del thing.own, thing.shared
    assert vars(thing) == {"own": "instance"}
    with overriding(thing, own=1):
        thing.own = "changed inside"
    assert thing.own == "instance"


def test_blocks_nest() -> None:
    thing = Thing()
    with overriding(thing, own=1):
        with overriding(thing, own=2, shared=3):
            assert thing.own == 2
        assert (thing.own, thing.shared) == (1, "class")
    assert thing.own == "instance"
