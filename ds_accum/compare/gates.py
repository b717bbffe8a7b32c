"""`--fail-if parity>1e-4`: limits that a comparison must keep, for a CI job.

    [variant:]metric>limit      parity>1e-4    token:parity>1e-4    "zero-3 token:memory>64MiB"    step_time>1.5

A variant is chosen by words of its name; without them the limit holds for every variant.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from ds_accum.compare.result import Comparison, VariantResult
from ds_accum.errors import UsageError

__all__ = ["METRICS", "Gate", "check_gates", "parse_gate", "require_variants"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Metric:
    says: str
    unit: str
    value: Callable[[VariantResult], float | None]


def _parity(result: VariantResult) -> float | None:
    return None if result.parity is None else result.parity.largest_error


def _step_time(result: VariantResult) -> float | None:
    return None if result.speed is None or not result.speed.step_seconds else median(result.speed.step_seconds)


def _memory(result: VariantResult) -> float | None:
    return None if result.memory is None else float(result.memory.peak)


def _bytes(result: VariantResult) -> float | None:
    return None if result.communication is None else sum(count.bytes for count in result.communication.counted)


def _calls(result: VariantResult) -> float | None:
    return None if result.communication is None else sum(count.calls for count in result.communication.counted)


METRICS: Mapping[str, _Metric] = {
    "parity": _Metric(says="largest relative error of the update against the truth", unit="", value=_parity),
    "step_time": _Metric(says="median time of an optimizer step", unit=" s", value=_step_time),
    "memory": _Metric(says="peak memory of a rank", unit=" bytes", value=_memory),
    "bytes": _Metric(says="bytes that a rank hands to collectives in an optimizer step", unit=" bytes", value=_bytes),
    "calls": _Metric(says="collectives that a rank calls in an optimizer step", unit="", value=_calls),
}

_RELATIONS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30, "s": 1, "ms": 1e-3}
_GATE = re.compile(
    r"(?:(?P<variant>.*):)?\s*(?P<metric>[\w-]+)\s*(?P<relation>[<>]=?)\s*(?P<limit>[-+.\deE]+)\s*(?P<unit>[A-Za-z]*)\s*"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A limit; `text` is how it was written. `words` are those of the variants it holds for, none for all."""

    text: str
    metric: str
    relation: str
    limit: float
    words: tuple[str, ...] = ()

    def holds_for(self, variant: str) -> bool:
        return set(self.words) <= set(variant.split())


def parse_gate(text: str) -> Gate:
    """Raises UsageError, with the list of what there is, for a text that says no limit."""
    match = _GATE.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"--fail-if {text!r} says no limit",
            remedy=f"write [variant:]metric>number, with the metric one of {', '.join(METRICS)}",
        )
    if match["metric"] not in METRICS:
        raise UsageError(f"--fail-if knows no metric {match['metric']!r}", remedy=f"there are {', '.join(METRICS)}")
    unit = match["unit"].lower()
    fits = unit in (("", "s", "ms") if match["metric"] == "step_time" else tuple(_UNITS)[:-2])
    if not fits or (unit and match["metric"] in ("parity", "calls")):
        raise UsageError(
            f"--fail-if {text!r}: {match['metric']} has no unit {match['unit']!r}",
            remedy="step_time takes s and ms; memory and bytes take kB, MB, GB, KiB, MiB and GiB",
        )
    try:
        limit = float(match["limit"]) * _UNITS[unit]
    except ValueError:
        raise UsageError(f"--fail-if {text!r}: {match['limit']!r} is no number", remedy="as in parity>1e-4") from None
    words = tuple((match["variant"] or "").split())
    return Gate(text=text, metric=match["metric"], relation=match["relation"], limit=limit, words=words)


def require_variants(gates: Sequence[Gate], names: Sequence[str]) -> None:
    """Raises UsageError, with the names there are, where a gate's words are no variant's."""
    for gate in gates:
        if not any(gate.holds_for(name) for name in names):
            raise UsageError(
                f"--fail-if {gate.text!r}: no variant is called {' '.join(gate.words) or 'anything'}",
                remedy=f"there are {', '.join(names)}",
            )


def check_gates(gates: Sequence[Gate], comparison: Comparison) -> Iterator[str]:
    """One sentence for each variant that is past a limit, and for each limit that nothing can be held against.

    A number that is no number is past every limit. Raises UsageError as `require_variants`.
    """
    require_variants(gates, [result.name for result in comparison.results])
    for gate in gates:
        chosen = [result for result in comparison.results if gate.holds_for(result.name)]
        metric = METRICS[gate.metric]
        measured = [(result, value) for result in chosen if (value := metric.value(result)) is not None]
        if not measured:
            of = f"of {' '.join(gate.words)}" if gate.words else "of any variant"
            yield f"{gate.text}: the {metric.says} {of} was not measured"
        for result, value in measured:
            if math.isnan(value) or _RELATIONS[gate.relation](value, gate.limit):
                yield f"{gate.text}: the {metric.says} of {result.name} is {value:.6g}{metric.unit}"
