from __future__ import annotations

import re

import pytest

from ds_accum.compare.projection import Projection
from ds_accum.compare.reports import render_markdown
from tests.compare.example import EXAMPLES, comparison, replaced

PROJECTION = Projection(worlds=(64,))


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_row_of_a_table_has_as_many_cells_as_its_heading(name: str) -> None:
    columns = 0
    for line in render_markdown(EXAMPLES[name](), projection=PROJECTION).splitlines():
        if line.startswith("|"):
            cells = len(re.findall(r"(?<!\\)\|", line)) - 1
            columns = columns or cells
            assert cells == columns
        else:
            columns = 0


def test_the_verdict_comes_first() -> None:
    lines = render_markdown(comparison()).splitlines()
    assert lines[0] == "# ds-accum compare"
    assert lines[2].startswith("* **+** all 4 token variants agree")


def test_names_are_no_markup() -> None:
    text = render_markdown(EXAMPLES["extreme"]())
    outside = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    assert "\\<script\\>" in outside
    assert not re.search(r"(?<!\\)<script", outside)
    assert not re.search(r"(?<!\\)\$x", outside)


def test_an_error_with_fences_of_its_own_stays_in_its_block() -> None:
    text = render_markdown(replaced(comparison(), "ddp", status="failed", failure="```\n# not a heading\n```"))
    assert "````text\n```\n# not a heading\n```\n````" in text


def test_configs_are_given_and_projections_only_when_asked_for() -> None:
    assert '"stage": 3' in render_markdown(comparison())
    assert "Projection, not measured" not in render_markdown(comparison())
    assert "Projection, not measured" in render_markdown(comparison(), projection=PROJECTION)
