"""report.html: one file without script or network; the verdict first, then figures with their tables.

Light or dark as the reader's system, wide or narrow, on paper. Needs matplotlib: the `report` extra.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

from ds_accum.compare.projection import Projection, project
from ds_accum.compare.reports.sections import FigureName, Section, sections
from ds_accum.compare.reports.style import STYLE
from ds_accum.compare.reports.tables import Table, run_facts, summary_table
from ds_accum.compare.result import Comparison
from ds_accum.compare.verdict import verdict
from ds_accum.errors import UsageError

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
            _table(summary_table(comparison)),
            *(_section(comparison, section) for section in sections(comparison, steps, projection)),
            *_failures(comparison),
            _run(comparison),
            _configs(comparison),
        )
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>ds-accum compare</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>{_text(_title(comparison))}</h1>
{body}
</main>
</body>
</html>
"""


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
        items.append(f'<li class="{sentence.tone}">{heading}{_text(sentence.text)}</li>\n')
        topic = sentence.topic
    return f'<ul class="verdict">\n{"".join(items)}</ul>'


def _section(comparison: Comparison, section: Section) -> str:
    drawn = "" if section.figure is None else _figure(comparison, section.figure)
    return f"<section>\n<h2>{_text(section.title)}</h2>\n{drawn}{_table(section.table)}\n</section>"


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


def _table(table: Table) -> str:
    """Scrolls by itself where it is wider than the screen."""
    words = [' class="word"' if table.is_word(column) else "" for column in range(len(table.headings))]
    head = "".join(
        f'<th scope="col"{word}>{_text(cell)}</th>' for cell, word in zip(table.headings, words, strict=True)
    )
    body = "\n".join(_rows(table.rows, words))
    note = f'<p class="note">{_text(table.note)}</p>' if table.note else ""
    return (
        f'<div class="scroll" tabindex="0"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table></div>\n{note}"
    )


def _rows(rows: Sequence[tuple[str, ...]], words: list[str]) -> Iterator[str]:
    """Rows that follow upon each other under the same name share it."""
    for name, group in groupby(rows, key=lambda row: row[0]):
        same = list(group)
        span = f' rowspan="{len(same)}"' if len(same) > 1 else ""
        for index, (_, *cells) in enumerate(same):
            heading = "" if index else f'<th scope="row"{span} class="word">{_text(name)}</th>'
            inside = "".join(f"<td{word}>{_marked(cell)}</td>" for cell, word in zip(cells, words[1:], strict=True))
            yield f"<tr>{heading}{inside}</tr>"


_BAD_WORDS = ("differs", "failed", "refused", "unfinished", "changes the step")


def _marked(cell: str) -> str:
    if cell == "agrees" or cell.startswith("stopped"):
        return f'<span class="good">{_text(cell)}</span>'
    return f'<span class="bad">{_text(cell)}</span>' if cell.startswith(_BAD_WORDS) else _text(cell)


def _failures(comparison: Comparison) -> Iterator[str]:
    found = [(result.name, result.status, result.failure) for result in comparison.results if result.failure]
    if found:
        inside = "\n".join(
            f"<h3>{_text(name)}: {status}</h3>\n<pre>{_text(why)}</pre>" for name, status, why in found if why
        )
        yield f"<section>\n<h2>What went wrong</h2>\n{inside}\n</section>"


def _run(comparison: Comparison) -> str:
    facts = "".join(f"<dt>{_text(heading)}</dt><dd>{_text(text)}</dd>\n" for heading, text in run_facts(comparison))
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
        f"<h3>{_text(', '.join(names))}</h3>\n<pre>{_text(config)}</pre>" for config, names in alike.items()
    )
    return f'<section class="configs">\n<h2>Configs, as DeepSpeed was given them</h2>\n{inside}\n</section>'


def _text(text: str) -> str:
    """For the page; a percent sign stays with its number, and a power of ten in one piece."""
    whole = escape(text).replace(" %", "&nbsp;%")
    return re.sub(r"\d\.\de-\d+", r'<span class="n">\g<0></span>', whole)
