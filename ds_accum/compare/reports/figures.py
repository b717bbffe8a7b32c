"""The figures of the page, drawn by matplotlib as SVG that takes its ink from the page around it.

    svg(comparison, "error", narrow=False)  ->  '<svg ...>...</svg>', the same text for the same comparison

Lines and words are drawn in the reader's own text colour (currentColor), so that a figure reads in light, in dark and
on paper. Needs matplotlib, which is imported with this module.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from ds_accum.compare.measures import by_kind_and_moment, quartiles, variants_by_name
from ds_accum.compare.reports.sections import FigureName
from ds_accum.compare.result import Comparison, StepResult, VariantResult
from ds_accum.reporting.numbers import bytes_text, seconds_text

__all__ = ["DRAWINGS", "svg"]

# Stands for the page's text colour until the drawing is done; no other colour here is this one.
_INK = "#010203"
_PALETTE = ("#3b7dd8", "#e07b16", "#2f9e5c", "#b04fc4", "#d6455d", "#8a8f98", "#13a3b5", "#a8801e")
_MOMENT_HATCH = {"micro-batch": "", "boundary": "///", "step": "xxx"}
_KIND_COLORS = {
    "all-reduce": _PALETTE[0],
    "reduce-scatter": _PALETTE[1],
    "all-gather": _PALETTE[2],
    "broadcast": _PALETTE[3],
    "all-to-all": _PALETTE[4],
    "other": _PALETTE[5],
}
_ENGINE_LINES: Mapping[str, Any] = {
    "token": "-",
    "stock": (0, (4, 2)),
    "single": (0, (1, 1)),
}
_LONGEST_NAME = 34
_ROW_INCHES = 0.27
_SETTINGS: Mapping[str, Any] = {
    "axes.edgecolor": _INK,
    "axes.facecolor": "none",
    "axes.labelcolor": _INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "grid.alpha": 0.22,
    "grid.color": _INK,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.labelcolor": _INK,
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "text.color": _INK,
    "text.parse_math": False,
    "xtick.color": _INK,
    "ytick.color": _INK,
}


def svg(comparison: Comparison, name: FigureName, *, narrow: bool) -> str | None:
    """The figure as an element for a page, for a wide screen or for a phone; None where there is nothing to draw."""
    salt = f"{name}-{'narrow' if narrow else 'wide'}"
    # What the reader's own matplotlibrc says doesn't matter here.
    settings: Any = {key: value for key, value in matplotlib.rcParamsDefault.items() if not key.startswith("backend")}
    with matplotlib.rc_context(settings | _SETTINGS | {"svg.hashsalt": salt}):
        figure = DRAWINGS[name](comparison, 4.1 if narrow else 8.6)
        return None if figure is None else _element(figure, salt)


def _element(figure: Figure, salt: str) -> str:
    """What matplotlib writes, without what only a file of its own needs."""
    buffer = io.StringIO()
    with warnings.catch_warnings():
        # The reader's browser has letters that matplotlib's own font lacks.
        warnings.filterwarnings("ignore", message=".*missing from font.*")
        figure.savefig(
            buffer, format="svg", bbox_inches="tight", pad_inches=0.04, metadata={"Date": None, "Creator": None}
        )
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) (?:width|height)="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text))
    text = re.sub(r" font-family: [^;\"]*;", "", text)  # the page's
    text = re.sub(r"\s*\n\s*", "\n", text)
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', text))
    # Ids are of the whole page: only those that are referred to stay, and no other figure has the same.
    text = re.sub(r' id="([^"]*)"', lambda found: f' id="{salt}-{found[1]}"' if found[1] in used else "", text)
    text = re.sub(r'(url\(#|href="#)([^")]+)', rf"\1{salt}-\2", text)
    # matplotlib styles every element of the page; what it says is the figure's alone.
    text = re.sub(r"<style[^>]*>.*?</style>", "", text, count=1, flags=re.DOTALL)
    return text.replace(_INK, "currentColor").strip()


# --------------------------------------------------------------------------------------------------------- the figures


def _loss(comparison: Comparison, width: float) -> Figure | None:
    """A curve a variant, over steps."""
    return _curves(comparison, width, lambda step: step.loss, "loss", logarithmic=False)


def _error(comparison: Comparison, width: float) -> Figure | None:
    """On a logarithmic axis, with the tolerance as a line; an error of 0 is not on such an axis and is left out."""
    return _curves(comparison, width, lambda step: step.update_error, "error of the update", logarithmic=True)


def _curves(
    comparison: Comparison,
    width: float,
    value: Callable[[StepResult], float | None],
    label: str,
    *,
    logarithmic: bool,
) -> Figure | None:
    curves: list[tuple[VariantResult, list[tuple[int, float]]]] = []
    for result in comparison.results:
        values = [(step.step, value(step)) for step in result.parity.steps] if result.parity else []
        points = [(at, y) for at, y in values if y is not None and math.isfinite(y) and (y > 0 or not logarithmic)]
        if points:
            curves.append((result, points))
    if not curves:
        return None
    rows = len(curves) if width > 5 else math.ceil(len(curves) / 2)
    figure = Figure(figsize=(width, 3.3))
    axes = figure.add_subplot()
    handles = []
    for result, points in curves:
        style = _line_style(comparison, result.name)
        if len(points) == 1:
            style["marker"] = style.get("marker") or "o"
        axes.plot(*zip(*points, strict=True), **style, markersize=3.5)
        handles.append(Line2D([], [], label=_short(result.name, _LONGEST_NAME if width > 5 else 18), **style))
    if logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0e}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        tolerances = {result.parity.tolerance for result, _ in curves if result.parity and result.parity.tolerance > 0}
        for tolerance in sorted(tolerances):
            axes.axhline(tolerance, color=_INK, linewidth=1, linestyle=(0, (6, 3)))
        if tolerances:
            handles.append(Line2D([], [], color=_INK, linewidth=1, linestyle=(0, (6, 3)), label="tolerance"))
    steps = [at for _, points in curves for at, _ in points]
    margin = 0.04 * (max(steps) - min(steps)) or 0.5
    axes.set_xlim(min(steps) - margin, max(steps) + margin)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("optimizer step")
    axes.set_ylabel(label)
    axes.grid(visible=True)
    if width > 5:
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.02), fontsize=8, handlelength=3)
    else:
        columns = 1 if max(len(result.name) for result, _ in curves) > 18 or rows < 2 else 2
        axes.legend(
            handles=handles, loc="upper left", bbox_to_anchor=(-0.12, -0.17), ncols=columns, fontsize=8, handlelength=3
        )
    return figure


def _communication(comparison: Comparison, width: float) -> Figure | None:
    """A bar a variant: bytes by kind (colour) and moment (hatching)."""
    rows = [(r.name, by_kind_and_moment(r.communication.counted)) for r in comparison.results if r.communication]
    rows = [(name, parts) for name, parts in rows if parts]
    if not rows:
        return None
    figure, axes = _bars(width, [name for name, _ in rows])
    for row, (_, parts) in enumerate(rows):
        left = 0.0
        for moment, hatch in _MOMENT_HATCH.items():
            for kind, color in _KIND_COLORS.items():
                size = parts.get((kind, moment), (0.0, 0.0))[1]
                if size:
                    axes.barh(
                        row, size, left=left, color=color, hatch=hatch, edgecolor=_INK, linewidth=0.4, height=0.68
                    )
                    left += size
    kinds = [kind for kind in _KIND_COLORS if any(kind == found for _, parts in rows for found, _ in parts)]
    moments = [moment for moment in _MOMENT_HATCH if any(moment == found for _, parts in rows for _, found in parts)]
    handles = [Patch(facecolor=_KIND_COLORS[kind], label=kind) for kind in kinds]
    names = {"micro-batch": "before the boundary", "boundary": "at the boundary", "step": "in the step"}
    handles += [
        Patch(facecolor="none", edgecolor=_INK, linewidth=0.4, hatch=_MOMENT_HATCH[moment], label=names[moment])
        for moment in moments
    ]
    return _finished(figure, axes, handles, "bytes passed to collectives, per step and rank", bytes_text, width)


def _memory(comparison: Comparison, width: float) -> Figure | None:
    """A bar a variant: what of the peak can be told, and the rest."""
    rows = [(r.name, r.memory) for r in comparison.results if r.memory and r.memory.peak > 0]
    if not rows:
        return None
    figure, axes = _bars(width, [name for name, _ in rows])
    labels = ("parameters", "gradients", "optimizer state", "everything else")
    for row, (_, memory) in enumerate(rows):
        held = [memory.parameters, memory.gradients, memory.optimizer_state]
        left = 0.0
        for size, color in zip([*held, max(0, memory.peak - sum(held))], (*_PALETTE[:3], _PALETTE[5]), strict=True):
            axes.barh(row, float(size), left=left, color=color, edgecolor=_INK, linewidth=0.4, height=0.68)
            left += size
    handles = [
        Patch(facecolor=color, label=label) for label, color in zip(labels, (*_PALETTE[:3], _PALETTE[5]), strict=True)
    ]
    return _finished(figure, axes, handles, "peak memory of a rank", bytes_text, width)


def _speed(comparison: Comparison, width: float) -> Figure | None:
    """A row a variant: every step a dot, the middle half a bar, the median a line."""
    rows = [(r.name, r.speed.step_seconds, quartiles(r.speed.step_seconds)) for r in comparison.results if r.speed]
    known = [(name, times, spread) for name, times, spread in rows if spread is not None]
    if not known:
        return None
    figure, axes = _bars(width, [name for name, *_ in known])
    for row, (_, times, spread) in enumerate(known):
        axes.barh(
            row, spread.high - spread.low, left=spread.low, color=_PALETTE[0], alpha=0.45, height=0.6, linewidth=0
        )
        axes.plot([spread.median] * 2, [row - 0.36, row + 0.36], color=_PALETTE[1], linewidth=2.2)
        shown = [seconds for seconds in times if math.isfinite(seconds)]
        axes.plot(shown, [row] * len(shown), "o", color=_INK, markersize=2.6, alpha=0.6, markeredgewidth=0)
    handles: list[Patch | Line2D] = [
        Line2D([], [], color=_PALETTE[1], linewidth=2.2, label="median"),
        Patch(facecolor=_PALETTE[0], alpha=0.45, label="middle half"),
        Line2D([], [], color=_INK, marker="o", linestyle="none", markersize=3, alpha=0.6, label="a step"),
    ]
    return _finished(figure, axes, handles, "seconds a step: this machine, noisy", seconds_text, width)


DRAWINGS: Mapping[FigureName, Callable[[Comparison, float], Figure | None]] = {
    "loss": _loss,
    "error": _error,
    "communication": _communication,
    "memory": _memory,
    "speed": _speed,
}


# --------------------------------------------------------------------------------------------------------- their parts


def _bars(width: float, names: Sequence[str]) -> tuple[Figure, Axes]:
    """Axes with one row a variant, the first on top."""
    figure = Figure(figsize=(width, 0.75 + _ROW_INCHES * len(names)))
    axes = figure.add_subplot()
    axes.set_yticks(range(len(names)), [_short(name, _LONGEST_NAME if width > 5 else 16) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=True, axis="x")
    axes.set_axisbelow(True)
    return figure, axes


def _finished(
    figure: Figure,
    axes: Axes,
    handles: Sequence[Patch | Line2D],
    label: str,
    said: Callable[[float], str],
    width: float,
) -> Figure:
    axes.set_xlim(left=0)
    axes.set_xlabel(label)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7 if width > 5 else 4, min_n_ticks=2))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: said(value)))
    if width > 5:
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.02), fontsize=8)
    else:
        # A fixed distance below the words of the axis, however many rows there are.
        below = -0.48 / (figure.get_figheight() * 0.77)
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(-0.3, below), ncols=2, fontsize=8)
    return figure


def _line_style(comparison: Comparison, name: str) -> dict[str, Any]:
    """Colour by stage, line by engine: variants that train alike have the same colour."""
    variant = variants_by_name(comparison)[name]
    if variant.engine == "single":
        return {"color": _INK, "linestyle": _ENGINE_LINES["single"], "linewidth": 2.2}
    alike = [v.name for v in comparison.spec.variants if (v.engine, v.stage) == (variant.engine, variant.stage)]
    baselines = ("ddp", "ddp-every", "fsdp", "fsdp-every")
    color = (
        _PALETTE[4 + baselines.index(variant.engine)] if variant.engine in baselines else _PALETTE[variant.stage or 0]
    )
    marker = ("", "o", "s", "^", "D", "v")[alike.index(name) % 6]
    return {
        "color": color,
        "linestyle": _ENGINE_LINES.get(variant.engine, (0, (5, 1, 1, 1))),
        "linewidth": 1.7,
        "marker": marker,
    }


def _short(name: str, length: int) -> str:
    """Cut in the middle, so that both ends of a long name can be read."""
    if len(name) <= length:
        return name
    head = (length - 1) // 2
    return f"{name[:head]}…{name[len(name) - (length - 1 - head) :]}"
