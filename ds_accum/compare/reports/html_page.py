"""report.html: one file without script or network; the verdict first, then figures with their tables.

Light or dark as the reader's system, wide or narrow, on paper. Needs matplotlib: the `report` extra.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from ds_accum.compare.projection import Projection, project
from ds_accum.compare.reports.sections import FigureName, Section, sections
from ds_accum.compare.reports.tables import run_facts, summary_table
from ds_accum.compare.result import Comparison
from ds_accum.compare.verdict import verdict
from ds_accum.errors import UsageError
from ds_accum.reporting.html_page import page, table_html, text_html

__all__ = ["render_html"]

_SPOKEN: dict[FigureName, str] = {
    "loss": "Loss of every variant over the steps",
    "error": "Error of the update against the truth over the steps, on a logarithmic axis",
    "communication": "Bytes passed to collectives in a step, by variant, kind and moment",
    "memory": "Peak memory by variant, split into parameters, gradients, optimizer state and the rest",
    "speed": "Step times by variant: every step, the middle half and the median",
}


def render_html(comparison: Comparison, *, projection: Projection | None = None) -> str:
    """The page, a whole document; the same text for the same comparison. Raises UsageError without matplotlib."""
    steps = None if projection is None else project(comparison, projection)
    body = "\n".join(
        (
            _verdict(comparison),
            table_html(summary_table(comparison), cell_html=_marked),
            *(_section(comparison, section) for section in sections(comparison, steps, projection)),
            *_failures(comparison),
            _run(comparison),
            _configs(comparison),
        )
    )
    return page(_title(comparison), body, short_title="ds-accum compare")


def _title(comparison: Comparison) -> str:
    spec = comparison.spec
    return (
        f"{len(comparison.results)} {'way' if len(comparison.results) == 1 else 'ways'} to train"
        f" {comparison.parameters:,} parameters on {spec.world_size} ranks, {spec.steps} steps of"
        f" {spec.global_batch_size} samples"
    )


def _verdict(comparison: Comparison) -> str:
    """One list; what a sentence is about stands over the first of its kind."""
    items, topic = [], ""
    for sentence in verdict(comparison):
        heading = "" if sentence.topic == topic else f"<b>{sentence.topic}</b> "
        items.append(f'<li class="{sentence.tone}">{heading}{text_html(sentence.text)}</li>\n')
        topic = sentence.topic
    return f'<ul class="verdict">\n{"".join(items)}</ul>'


def _section(comparison: Comparison, section: Section) -> str:
    drawn = "" if section.figure is None else _figure(comparison, section.figure)
    table = table_html(section.table, cell_html=_marked)
    return f"<section>\n<h2>{text_html(section.title)}</h2>\n{drawn}{table}\n</section>"


def _figure(comparison: Comparison, name: FigureName) -> str:
    try:
        from ds_accum.compare.reports.figures import svg
    except ImportError as error:
        raise UsageError(
            f"the page's figures need matplotlib, which can't be imported here: {error}",
            remedy="pip install 'ds-accum[report]', or ask for another format",
        ) from error
    wide, narrow = (svg(comparison, name, narrow=narrow) for narrow in (False, True))
    if wide is None or narrow is None:
        return f'<p class="nothing" id="figure-{name}">Nothing was measured that could be drawn here.</p>\n'
    return (
        f'<figure id="figure-{name}" role="img" aria-label="{_SPOKEN[name]}">\n'
        f'<div class="wide" aria-hidden="true">{wide}</div>\n<div class="narrow" aria-hidden="true">{narrow}</div>\n'
        "</figure>\n"
    )


_BAD_WORDS = ("differs", "failed", "refused", "unfinished", "changes the step")


def _marked(cell: str) -> str:
    if cell == "agrees" or cell.startswith("stopped"):
        return f'<span class="good">{text_html(cell)}</span>'
    return f'<span class="bad">{text_html(cell)}</span>' if cell.startswith(_BAD_WORDS) else text_html(cell)


def _failures(comparison: Comparison) -> Iterator[str]:
    found = [(result.name, result.status, result.failure) for result in comparison.results if result.failure]
    if found:
        inside = "\n".join(
            f"<h3>{text_html(name)}: {status}</h3>\n<pre>{text_html(why)}</pre>" for name, status, why in found if why
        )
        yield f"<section>\n<h2>What went wrong</h2>\n{inside}\n</section>"


def _run(comparison: Comparison) -> str:
    facts = "".join(
        f"<dt>{text_html(heading)}</dt><dd>{text_html(text)}</dd>\n" for heading, text in run_facts(comparison)
    )
    return f"<section>\n<h2>What was run</h2>\n<dl>\n{facts}</dl>\n</section>"


def _configs(comparison: Comparison) -> str:
    """Variants with the same config, of which the engine is all that differs, share one."""
    alike: dict[str, list[str]] = {}
    for variant in comparison.spec.variants:
        if variant.config:
            alike.setdefault(json.dumps(variant.config, indent=2), []).append(variant.name)
    if not alike:
        return ""
    inside = "\n".join(
        f"<h3>{text_html(', '.join(names))}</h3>\n<pre>{text_html(config)}</pre>" for config, names in alike.items()
    )
    return f'<section class="configs">\n<h2>Configs, as DeepSpeed was given them</h2>\n{inside}\n</section>'
