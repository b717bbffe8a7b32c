"""The summary and its plots as one page: no script, no network, light or dark as the reader's system, narrow or wide.

Curves are drawn in a box that is stretched to the width of the screen; every word stands outside of it, in the
reader's own size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from ds_accum.steps.axis import Axis
from ds_accum.steps.buckets import Bucket, bucketed, counted
from ds_accum.steps.columns import NO_COUNT, Steps
from ds_accum.steps.numbers import finite, in_full, percent, short
from ds_accum.steps.reading import Log
from ds_accum.steps.sentences import said
from ds_accum.steps.summary import Summary

__all__ = ["html_page"]

# A phone has no more columns to show, and a screen shows no more than one can see.
_COLUMNS = 400
_WIDTH, _HEIGHT = 1000.0, 100.0
_ODD = ' class="odd"'

_STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #1b1f24; --soft: #59636e; --line: #d5dae0; --card: #f5f7f9;
  --curve: #0b62c4; --skip: #c8102e; --odd: #8a5a00; }
@media (prefers-color-scheme: dark) { :root { --page: #14171b; --ink: #e8ebee; --soft: #9aa4ae; --line: #363d45;
  --card: #1d2126; --curve: #6cb2ff; --skip: #ff6b7d; --odd: #f0b64a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.45 system-ui, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1.25rem 1rem 3rem; }
h1 { font-size: 1.35rem; margin: 0 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1rem; margin: 2rem 0 .5rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .6rem; margin: 0; }
.tiles div { background: var(--card); border-radius: .5rem; padding: .6rem .8rem; display: flex;
  flex-direction: column-reverse; justify-content: flex-end; }
.tiles dt { color: var(--soft); font-size: .85rem; }
.tiles dd { margin: 0; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
figure { margin: 1.6rem 0 0; }
figcaption { font-weight: 600; margin-bottom: .35rem; }
figcaption small, .key { color: var(--soft); font-weight: 400; font-size: .85rem; }
.plot { display: grid; grid-template-columns: 5rem 1fr; column-gap: .5rem; font-size: .8rem; color: var(--soft);
  font-variant-numeric: tabular-nums; }
.y { display: flex; flex-direction: column; justify-content: space-between; text-align: right; white-space: nowrap;
  margin: -.6em 0; }
.x { grid-column: 2; display: flex; justify-content: space-between; padding-top: .25rem; }
svg { display: block; width: 100%; height: 11rem; overflow: visible; }
svg * { vector-effect: non-scaling-stroke; }
.grid { stroke: var(--line); stroke-width: 1; }
.band { fill: var(--curve); opacity: .28; }
.curve { fill: none; stroke: var(--curve); stroke-width: 1.75; stroke-linejoin: round; }
.skip { stroke: var(--skip); stroke-width: 1.5; }
.key b { color: var(--skip); }
dl.said { margin: 0; display: grid; grid-template-columns: 9rem 1fr; gap: .45rem 1rem; }
.said dt { color: var(--soft); }
.said dd { margin: 0; overflow-wrap: anywhere; }
.said .odd { color: var(--odd); }
@media (max-width: 36rem) {
  .plot { grid-template-columns: 4rem 1fr; }
  svg { height: 8.5rem; }
  dl.said { grid-template-columns: 1fr; gap: 0; }
  .said dt:not(:empty) { margin-top: .7rem; }
}
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Chart:
    title: str
    values: Sequence[float]
    shows_skips: bool = False


def html_page(log: Log, summary: Summary) -> str:
    """The page, a whole document."""
    title = escape(", ".join(log.names))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}: steps</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{_tiles(summary)}
{"".join(_figures(log.steps, summary))}
<h2>Summary</h2>
{_said(summary)}
{_notes(log)}
</main>
</body>
</html>
"""


def _tiles(summary: Summary) -> str:
    """The few numbers that are looked for first."""
    loss, clipping, time = summary.loss, summary.clipping, summary.time
    tiles = [
        ("last loss", None if loss is None else short(loss.last)),
        ("steps", in_full(summary.steps)),
        ("skipped", in_full(summary.skipped)),
        ("clipped", None if clipping is None else percent(clipping.rate)),
        ("tokens a second", None if time is None or not time.tokens_per_second else short(time.tokens_per_second)),
    ]
    inside = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in tiles if value is not None)
    return f'<dl class="tiles">{inside}</dl>'


def _figures(steps: Steps, summary: Summary) -> Iterator[str]:
    charts = [
        _Chart(title="Loss", values=steps.loss, shows_skips=True),
        _Chart(title="Gradient norm before clipping", values=steps.grad_norm, shows_skips=True),
        _Chart(
            title="Tokens a step", values=[math.nan if tokens == NO_COUNT else tokens for tokens in steps.num_tokens]
        ),
        _Chart(title="Weighting skew", values=steps.weighting_skew),
        _Chart(title="Learning rate", values=steps.learning_rate),
        _Chart(title="Seconds a step", values=steps.seconds),
    ]
    if summary.loss_scale is not None and summary.loss_scale.changes:
        charts.append(_Chart(title="Loss scale", values=steps.loss_scale))
    skipped = [step for step, applied in zip(steps.step, steps.applied, strict=True) if not applied]
    for chart in charts:
        known = finite(chart.values)
        if known:
            yield _figure(chart, known, steps, skipped if chart.shows_skips else [])


def _figure(chart: _Chart, known: Sequence[float], steps: Steps, skipped: Sequence[int]) -> str:
    columns = min(_COLUMNS, steps.step[-1] - steps.step[0] + 1)
    buckets = bucketed(steps.step, chart.values, columns)
    axis = Axis.over(known)
    scale = " <small>logarithmic</small>" if axis.is_logarithmic else ""
    labels = "".join(f"<span>{short(axis.value(height))}</span>" for height in (1, 0.5, 0))
    numbers = _ends(steps.step[0], steps.step[-1])
    drawn = f"{_grid()}{_skips(steps, skipped, columns)}{_band(buckets, axis)}{_curve(buckets, axis)}"
    spoken = f"{chart.title} from {short(min(known))} to {short(max(known))}"
    key = '<div class="key"><b>|</b> skipped</div>' if skipped else ""
    return f"""<figure>
<figcaption>{chart.title}{scale}</figcaption>
<div class="plot"><div class="y">{labels}</div>
<svg viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" preserveAspectRatio="none" role="img" aria-label="{spoken}">{drawn}</svg>
<div class="x">{numbers}</div></div>{key}
</figure>
"""


def _ends(first: int, last: int) -> str:
    shown = [first] if first == last else [first, (first + last) // 2, last] if last - first > 1 else [first, last]
    return "".join(f"<span>{'step ' if index == 0 else ''}{step}</span>" for index, step in enumerate(shown))


def _grid() -> str:
    return "".join(f'<path class="grid" d="M0 {y:g}H{_WIDTH:g}"/>' for y in (0, _HEIGHT / 2, _HEIGHT))


def _skips(steps: Steps, skipped: Sequence[int], columns: int) -> str:
    if not skipped:
        return ""
    counts = counted(steps.step, skipped, columns)
    lines = "".join(
        f"M{(column + 0.5) * _WIDTH / columns:.1f} 0V{_HEIGHT:g}" for column, count in enumerate(counts) if count
    )
    return f'<path class="skip" d="{lines}"/>'


def _band(buckets: Sequence[Bucket | None], axis: Axis) -> str:
    """From the lowest to the highest value of each column, where a column has several."""
    filled = list(_filled(buckets))
    if all(bucket.low == bucket.high for _, bucket in filled):
        return ""
    over = [_point(x, bucket.high, axis) for x, bucket in filled]
    under = [_point(x, bucket.low, axis) for x, bucket in reversed(filled)]
    return f'<path class="band" d="M{" ".join([*over, *under])}Z"/>'


def _curve(buckets: Sequence[Bucket | None], axis: Axis) -> str:
    points = [_point(x, bucket.mean, axis) for x, bucket in _filled(buckets)]
    # A single value is a line across.
    line = f"{' '.join(points)}" if len(points) > 1 else f"0 {points[0].split()[1]}H{_WIDTH:g}"
    return f'<path class="curve" d="M{line}"/>'


def _filled(buckets: Sequence[Bucket | None]) -> Iterator[tuple[float, Bucket]]:
    for column, bucket in enumerate(buckets):
        if bucket is not None:
            yield (column + 0.5) * _WIDTH / len(buckets), bucket


def _point(x: float, value: float, axis: Axis) -> str:
    return f"{x:.1f} {(1 - axis.height(value)) * _HEIGHT:.2f}"


def _text(text: str) -> str:
    """For the page; a percent sign stays with its number."""
    return escape(text).replace(" %", "&nbsp;%")


def _said(summary: Summary) -> str:
    rows = "".join(
        f"<dt>{escape(part.heading)}</dt><dd{_ODD if part.is_odd else ''}>{_text(part.text)}</dd>\n"
        for part in said(summary)
    )
    return f'<dl class="said">\n{rows}</dl>'


def _notes(log: Log) -> str:
    return "".join(f"<p>Note: {_text(note)}.</p>\n" for note in log.notes)
