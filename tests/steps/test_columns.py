"""Columns of steps: labels kept once, and the end of all of them forgotten together."""

from __future__ import annotations

from dataclasses import fields

from ds_accum.steps.columns import Labels, Steps


def filled(numbers: list[int]) -> Steps:
    steps = Steps()
    for column in fields(steps):
        values = getattr(steps, column.name)
        values.extend([None] * len(numbers) if isinstance(values, Labels) else numbers)
    return steps


def length_of(steps: Steps, name: str) -> int:
    values = getattr(steps, name)
    return len(values.codes if isinstance(values, Labels) else values)


def test_labels_are_kept_once() -> None:
    labels = Labels()
    labels.extend(["a", None, "a"])
    labels.extend(["b", "a"])
    assert [labels.text_of()[code] for code in labels.codes] == ["a", None, "a", "b", "a"]
    assert len(labels.known) == 3


def test_steps_are_forgotten_in_every_column() -> None:
    steps = filled([1, 2, 3, 5, 8])
    assert steps.forget_from(4) == 2
    assert list(steps.step) == [1, 2, 3]
    assert {length_of(steps, column.name) for column in fields(steps)} == {3}
    assert steps.forget_from(4) == 0
    assert steps.forget_from(0) == 3 and len(steps) == 0
