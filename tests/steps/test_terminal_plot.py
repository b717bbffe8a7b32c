"""Curves where they belong: each value at its height and step, spikes included, in braille and in ASCII."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds_accum.steps.columns import Steps
from ds_accum.steps.look import Look
from ds_accum.steps.terminal_plot import plot

DRAWN = "│┤|+"


def steps_of(losses: list[float], *, norms: list[float] | None = None, skipped: tuple[int, ...] = ()) -> Steps:
    steps = Steps()
    steps.step.extend(range(1, len(losses) + 1))
    steps.loss.extend(losses)
    steps.grad_norm.extend(losses if norms is None else norms)
    steps.applied.extend(int(step not in skipped) for step in steps.step)
    return steps


def loss_rows(lines: list[str]) -> list[str]:
    """What is drawn right of the axis of the loss, at full width."""
    rows = [line[min(line.find(sign) for sign in DRAWN if sign in line) + 1 :] for line in lines[1:9]]
    return [row.ljust(80) for row in rows]


def columns_of(rows: list[str]) -> list[set[int]]:
    """Column -> the rows in which something is drawn."""
    return [{row for row, text in enumerate(rows) if text[column] != " "} for column in range(80)]


@pytest.mark.parametrize("unicode", [True, False])
def test_a_falling_curve_falls_from_the_top_left_to_the_bottom_right(unicode: bool) -> None:
    rows = loss_rows(list(plot(steps_of([float(100 - step) for step in range(100)]), Look(unicode=unicode))))
    lit = [column for column in columns_of(rows) if column]
    assert lit[0] == {0} and lit[-1] == {7}
    assert all(min(after) >= min(before) and min(after) <= max(before) + 1 for before, after in itertools.pairwise(lit))


@pytest.mark.parametrize("unicode", [True, False])
@pytest.mark.parametrize("at", [0, 1, 77_777, 99_999])
def test_one_spike_in_many_steps_is_seen(unicode: bool, at: int) -> None:
    losses = [1.0] * 100_000
    losses[at] = 2.0
    rows = loss_rows(list(plot(steps_of(losses), Look(unicode=unicode))))
    spikes = [column for column, lit in enumerate(columns_of(rows)) if 0 in lit]
    width = len(rows[-1].rstrip())
    assert spikes and all(abs(column - at * width // 100_000) <= 1 for column in spikes)


def test_few_steps_are_joined_by_a_line() -> None:
    rows = loss_rows(list(plot(steps_of([0.0, 1.0, 0.0]), Look())))
    width = len(rows[-1].rstrip())
    assert all(columns_of(rows)[:width])


def test_skipped_steps_are_marked_where_they_are_and_the_more_the_fuller() -> None:
    lines = list(plot(steps_of([1.0] * 1000, skipped=(1, 2, 3, 4, 1000)), Look()))
    (row,) = [line for line in lines if "skipped" in line]
    marks = row[row.index("│") + 1 :]
    assert marks[0] == "█" and marks[-1] == "▂" and not marks[1:-1].strip()
    assert not [line for line in plot(steps_of([1.0] * 10), Look()) if "skipped" in line]


def test_the_axes_have_numbers() -> None:
    lines = list(plot(steps_of([4.0, 3.0, 2.0], norms=[1.0, 1.0, 1.0]), Look()))
    assert [line.split()[0] for line in lines if "┤" in line][:3] == ["4", "2.857", "2"]
    assert lines[-1].split() == ["step", "1", "2", "3"]


def test_a_norm_with_a_spike_is_drawn_to_the_logarithm() -> None:
    lines = list(plot(steps_of([1.0] * 99 + [1000.0]), Look()))
    assert "loss (log)" in lines and "gradient norm (log)" in lines


def test_where_no_value_is_finite_it_is_said() -> None:
    lines = list(plot(steps_of([math.nan, math.inf], norms=[1.0, 2.0]), Look()))
    assert lines[0] == "loss: no step has a finite one"
    assert "gradient norm" in lines


@given(
    st.lists(st.floats(min_value=-1e300, max_value=1e300) | st.sampled_from([math.nan, math.inf]), min_size=1),
    st.integers(40, 120),
    st.booleans(),
)
def test_no_line_is_ever_wider_than_the_terminal(values: list[float], width: int, unicode: bool) -> None:
    lines = list(plot(steps_of(values), Look(width=width, unicode=unicode)))
    assert max(map(len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)
    assert unicode or all(map(str.isascii, lines))
