"""Pages are drawn when a test first asks for one: drawing takes seconds."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from ds_accum.compare.projection import Projection
from ds_accum.compare.reports import render_html
from tests.compare.example import EXAMPLES


@functools.cache
def drawn(name: str) -> str:
    return render_html(EXAMPLES[name](), projection=Projection(worlds=(64,)) if name == "failures" else None)


@pytest.fixture(scope="session")
def page_of() -> Callable[[str], str]:
    """Name of an example -> its page; "failures" has projections, too."""
    return drawn
