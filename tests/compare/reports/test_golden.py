"""One comparison, one golden file per way to show it.

Set DS_ACCUM_WRITE_GOLDEN=1 to write the files anew, and read the difference before it goes in. The page is not among
them: how matplotlib draws differs from release to release.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ds_accum.compare.projection import Projection
from ds_accum.compare.reports import render_json, render_markdown, render_terminal
from tests.compare.example import comparison, extreme, one_variant, with_failures

GOLDEN = Path(__file__).parent / "golden"
PROJECTION = Projection(worlds=(64, 16384))

WAYS: dict[str, Callable[[], str]] = {
    "whole.txt": lambda: render_terminal(comparison(), projection=PROJECTION),
    "failures.txt": lambda: render_terminal(with_failures()),
    "extreme.txt": lambda: render_terminal(extreme()),
    "failures.md": lambda: render_markdown(with_failures(), projection=PROJECTION),
    "one-variant.json": lambda: render_json(one_variant()),
}


@pytest.mark.parametrize("name", WAYS)
def test_what_is_shown_is_the_golden_file(name: str) -> None:
    shown = WAYS[name]()
    path = GOLDEN / name
    if os.environ.get("DS_ACCUM_WRITE_GOLDEN") == "1":
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text("utf-8")


def test_every_way_has_a_golden_file_and_every_golden_file_a_way() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == set(WAYS)
