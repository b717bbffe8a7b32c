"""What the counted collectives say: which stage moves how many times the bytes of which, and when ZeRO-2 reduces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ds_accum.compare.formulas import is_coalesced
from ds_accum.compare.measures import formula_differences, passed_bytes, ring_bytes, same_training, variants_by_name
from ds_accum.compare.result import Comparison, VariantResult
from ds_accum.compare.spec import Variant
from ds_accum.reporting.numbers import bytes_text, count_text, listed, times_text

__all__ = ["differences", "sentences"]

Row = tuple[Variant, VariantResult]


def differences(comparison: Comparison) -> Iterator[str]:
    """One sentence for each variant whose counts are not what its formula says."""
    for result in comparison.results:
        found = formula_differences(result)
        if found:
            shown = [
                f"{kind} ({moment}) {_calls_and_bytes(counted)} counted, {_calls_and_bytes(expected)} by the formula"
                for kind, moment, counted, expected in found
            ]
            yield f"{result.name} does not communicate as its formula says: {'; '.join(shown)}"


def sentences(comparison: Comparison) -> Iterator[str]:
    """How the stages compare, when ZeRO-2 reduces, what token weighting adds, and how far the formulas hold."""
    variants = variants_by_name(comparison)
    rows = [(variants[result.name], result) for result in comparison.results if _is_counted(result)]
    yield from _stages(comparison, rows)
    yield from _zero_2(rows)
    yield from _token(rows)
    yield from _formulas(rows)


def _is_counted(result: VariantResult) -> bool:
    return result.communication is not None and bool(result.communication.counted)


def _stages(comparison: Comparison, rows: Sequence[Row]) -> Iterator[str]:
    """One sentence for each accumulation: the stages of one engine, none of them varied, against the lowest but 0."""
    for accumulation in dict.fromkeys(variant.gradient_accumulation_steps for variant, _ in rows):
        for engine in ("token", "stock"):
            stages = {
                variant.stage: result
                for variant, result in reversed(rows)
                if (variant.engine, variant.gradient_accumulation_steps) == (engine, accumulation)
                and variant.stage is not None
                and not variant.varied
                and not is_coalesced(variant)
            }
            if len(stages) > 1:
                yield _stages_of(comparison, stages, accumulation)
                break


def _stages_of(comparison: Comparison, stages: dict[int, VariantResult], accumulation: int) -> str:
    ordered = sorted(stages)
    base = 1 if 1 in stages else ordered[0]
    compared = [stage for stage in reversed(ordered) if stage != base]
    passed, on_ring = _passed(stages[base]), _on_ring(comparison, stages[base])
    parts = []
    for index, stage in enumerate(compared):
        text = f"stage {stage}"
        if passed:
            times = times_text(_passed(stages[stage]) / passed)
            text += f" moves {times} times the bytes of stage {base}" if index == 0 else f" {times} times"
        if index == 0:
            text += f" at accumulation {accumulation}"
        sizes = f"{bytes_text(_passed(stages[stage]))} a step" + (f" against {bytes_text(passed)}" if not index else "")
        ring = (
            f", {times_text(_on_ring(comparison, stages[stage]) / on_ring)} times sent round a ring" if on_ring else ""
        )
        parts.append(f"{text} ({sizes}{ring})")
    return ", ".join(parts)


def _zero_2(rows: Sequence[Row]) -> Iterator[str]:
    """The two opposite claims about ZeRO-2, settled; variants with the same numbers share a sentence."""
    alike: dict[tuple[int, bool, float, float], list[str]] = {}
    for variant, result in rows:
        accumulation = variant.gradient_accumulation_steps
        if variant.stage == 2 and accumulation > 1:
            early, _ = _reductions(result, ("micro-batch",))
            key = (accumulation, early > 0, *_reductions(result, ("micro-batch", "boundary")))
            alike.setdefault(key, []).append(result.name)
    for (accumulation, is_early, calls, size), names in alike.items():
        verb = "reduces" if len(names) == 1 else "reduce"
        when = "in every backward, not once a step" if is_early else "once a step, at the boundary"
        word = "reduction" if calls == 1 else "reductions"
        yield (
            f"{listed(names)} {verb} gradients {when}: {count_text(calls)} {word} of {bytes_text(size)} together at"
            f" accumulation {accumulation}"
        )


def _token(rows: Sequence[Row]) -> Iterator[str]:
    """What weighting by tokens adds to the same training by stock DeepSpeed, if it is the same everywhere."""
    stock = {same_training(variant): result for variant, result in rows if variant.engine == "stock"}
    added = set()
    for variant, result in rows:
        other = stock.get(same_training(variant))
        if variant.engine == "token" and other is not None:
            added.add((_calls(result) - _calls(other), _passed(result) - _passed(other)))
    if len(added) == 1:
        calls, size = added.pop()
        if calls >= 0 and size >= 0:
            word = "collective" if calls == 1 else "collectives"
            yield f"weighting by tokens adds {count_text(calls)} {word} of {bytes_text(size)} a step on every stage"


def _formulas(rows: Sequence[Row]) -> Iterator[str]:
    with_formula = [result for _, result in rows if result.communication and result.communication.expected is not None]
    right = [result for result in with_formula if not formula_differences(result)]
    without = [result.name for _, result in rows if result not in with_formula]
    if right:
        which = "all" if len(right) == len(with_formula) else f"{len(right)} of"
        text = f"the counts equal the formula in {which} {len(with_formula)} variants that have one"
        if len(with_formula) == 1:
            text = f"the counts of {right[0].name} equal the formula"
        yield f"{text}; there is none for {listed(without)}" if without else text
    elif without:
        yield f"there is no formula for {listed(without)}: these are counts alone"


def _reductions(result: VariantResult, moments: Sequence[str]) -> tuple[float, float]:
    assert result.communication is not None
    found = [
        count
        for count in result.communication.counted
        if count.moment in moments and count.kind in ("all-reduce", "reduce-scatter")
    ]
    return sum(count.calls for count in found), sum(count.bytes for count in found)


def _calls(result: VariantResult) -> float:
    return sum(count.calls for count in result.communication.counted) if result.communication else 0.0


def _passed(result: VariantResult) -> float:
    return passed_bytes(result.communication.counted) if result.communication else 0.0


def _on_ring(comparison: Comparison, result: VariantResult) -> float:
    return ring_bytes(result.communication.counted, comparison.spec.world_size) if result.communication else 0.0


def _calls_and_bytes(pair: tuple[float, float]) -> str:
    calls, size = pair
    return f"{count_text(calls)} of {count_text(size)} B"
