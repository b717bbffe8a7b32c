"""The tables of a report, as text in cells; each format only sets them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ds_accum.compare.measures import (
    by_kind_and_moment,
    formula_differences,
    is_within_tolerance,
    passed_bytes,
    quartiles,
    ring_bytes,
    variants_by_name,
)
from ds_accum.compare.projection import ASSUMPTIONS, ProjectedStep, Projection
from ds_accum.compare.result import Comparison, VariantResult
from ds_accum.reporting.numbers import bytes_text, count_text, error_text, loss_text, seconds_text
from ds_accum.reporting.table import Table

__all__ = [
    "communication_table",
    "loss_table",
    "memory_table",
    "misuse_table",
    "parity_table",
    "projection_table",
    "run_facts",
    "speed_table",
    "summary_table",
    "verdict_word",
]

NONE = "-"
"""Not measured."""


def summary_table(comparison: Comparison) -> Table:
    """One line a variant, with the one number of each kind that matters most."""
    rows = []
    for result in comparison.results:
        spread = quartiles(result.speed.step_seconds) if result.speed else None
        counted = result.communication
        rows.append(
            (
                result.name,
                verdict_word(comparison, result),
                error_text(result.parity.largest_error)
                if result.parity and result.parity.largest_error is not None
                else NONE,
                bytes_text(passed_bytes(counted.counted)) if counted else NONE,
                bytes_text(result.memory.peak) if result.memory else NONE,
                seconds_text(spread.median) if spread else NONE,
            )
        )
    return Table(
        headings=("variant", "verdict", "error", "bytes/step", "peak", "step time"),
        rows=tuple(rows),
        words=frozenset({0, 1}),
        note="error: of the update, against the truth, at its largest; bytes/step: what a rank passes to collectives in"
        " an optimizer step; peak: memory of a rank over what it held before the model; step time: median, noisy",
    )


def verdict_word(comparison: Comparison, result: VariantResult) -> str:
    """agrees, differs, refused, failed, unfinished; truth for the truth, - where there was none."""
    if result.status != "done":
        return result.status
    if variants_by_name(comparison)[result.name].engine == "single":
        return "truth"
    within = is_within_tolerance(result)
    return NONE if within is None else "agrees" if within else "differs"


def loss_table(comparison: Comparison) -> Table:
    """Loss after the first step, in the middle and at the end, with the gradient norm and clipping there."""
    rows = []
    for result in comparison.results:
        steps = result.parity.steps if result.parity else ()
        shown = [steps[0], steps[len(steps) // 2], steps[-1]] if steps else []
        losses = [loss_text(step.loss) if step.loss is not None else NONE for step in shown] or [NONE] * 3
        last = steps[-1] if steps else None
        rows.append(
            (
                result.name,
                *losses,
                loss_text(last.grad_norm) if last and last.grad_norm is not None else NONE,
                loss_text(last.clip_coefficient) if last and last.clip_coefficient is not None else NONE,
                f"{sum(step.applied for step in steps)} of {len(steps)}" if steps else NONE,
            )
        )
    return Table(
        headings=("variant", "first loss", "middle", "last", "last norm", "clipped by", "updates applied"),
        rows=tuple(rows),
        note="loss: mean over all counted tokens of the global batch, before the update",
    )


def parity_table(comparison: Comparison) -> Table:
    """How far each variant is from the truth, and where it leaves it."""
    rows = []
    for result in comparison.results:
        parity = result.parity
        errors = [step.update_error for step in parity.steps if step.update_error is not None] if parity else []
        first = parity.first_difference if parity else None
        rows.append(
            (
                result.name,
                verdict_word(comparison, result),
                error_text(errors[0]) if errors else NONE,
                error_text(errors[-1]) if errors else NONE,
                error_text(parity.largest_error) if parity and parity.largest_error is not None else NONE,
                error_text(parity.tolerance) if parity else NONE,
                f"step {first.step}, {first.parameter} ({error_text(first.error)})" if first else NONE,
            )
        )
    return Table(
        headings=("variant", "verdict", "first step", "last step", "largest", "tolerance", "first leaves the truth at"),
        rows=tuple(rows),
        words=frozenset({0, 1, 6}),
        note="error: |parameters - truth| / |truth - start|, over all parameters; the truth is one process in float64"
        " that sees the whole batch at once; an error of 0 has no place on a logarithmic axis",
    )


def communication_table(comparison: Comparison) -> Table:
    """Every kind of collective of every variant by moment, against its formula."""
    rows = []
    for result in comparison.results:
        communication = result.communication
        if communication is None:
            rows.append((result.name, NONE, NONE, NONE, NONE, NONE, NONE))
            continue
        counted = by_kind_and_moment(communication.counted)
        expected = None if communication.expected is None else by_kind_and_moment(communication.expected)
        differing = {(kind, moment) for kind, moment, *_ in formula_differences(result)}
        if not counted and not expected:
            rows.append((result.name, "none", NONE, "0", "0 B", "0 B", NONE if expected is None else "equal"))
        for key in dict.fromkeys([*counted, *(expected or {})]):
            kind, moment = key
            calls, size = counted.get(key, (0.0, 0.0))
            alone = [count for count in communication.counted if (count.kind, count.moment) == key]
            formula = NONE if expected is None else "equal"
            if expected is not None and key in differing:
                formula = "{} of {} B".format(*map(count_text, expected.get(key, (0.0, 0.0))))
            on_ring = bytes_text(ring_bytes(alone, comparison.spec.world_size))
            rows.append((result.name, kind, moment, count_text(calls), f"{count_text(size)} B", on_ring, formula))
    return Table(
        headings=("variant", "collective", "moment", "calls", "bytes passed", "sent on a ring", "formula"),
        rows=tuple(rows),
        words=frozenset({0, 1, 2, 6}),
        note="of one optimizer step and one rank; micro-batch: in all micro-batches before the window's last, boundary:"
        " in the last, step: in the optimizer step",
    )


def memory_table(comparison: Comparison) -> Table:
    """Peak, and what of it can be told."""
    rows = []
    for result in comparison.results:
        memory = result.memory
        if memory is None:
            rows.append((result.name, *[NONE] * 6))
            continue
        held = (memory.parameters, memory.gradients, memory.optimizer_state)
        rows.append(
            (
                result.name,
                *map(bytes_text, held),
                bytes_text(max(0, memory.peak - sum(held))),
                bytes_text(memory.peak),
                NONE if memory.reserved is None else bytes_text(memory.reserved),
            )
        )
    return Table(
        headings=("variant", "parameters", "gradients", "optimizer", "everything else", "peak", "reserved"),
        rows=tuple(rows),
        note="the largest rank of a fresh process, over what it held before the model; everything else: activations,"
        " buffers, and what the allocator keeps",
    )


def speed_table(comparison: Comparison) -> Table:
    """Step times with their spread, and where the time goes."""
    rows = []
    for result in comparison.results:
        speed = result.speed
        spread = quartiles(speed.step_seconds) if speed else None
        if speed is None:
            rows.append((result.name, *[NONE] * 7))
            continue
        rows.append(
            (
                result.name,
                seconds_text(spread.median) if spread else NONE,
                f"{seconds_text(spread.low)} to {seconds_text(spread.high)}" if spread else NONE,
                seconds_text(speed.forward_seconds),
                seconds_text(speed.backward_seconds),
                seconds_text(speed.update_seconds),
                NONE if speed.communication_share is None else f"{100 * speed.communication_share:.0f} %",
                f"{speed.tokens_per_second:,.0f}",
            )
        )
    headings = ("variant", "step", "middle half", "forward", "backward", "update", "in collectives", "tokens/s")
    return Table(
        headings=headings,
        rows=tuple(rows),
        note="medians on the slowest rank, of this machine, noisy; where the middle halves overlap no difference can be"
        " told",
    )


def misuse_table(comparison: Comparison) -> Table | None:
    """What each misuse does under each variant; None where none was tried."""
    names = list(dict.fromkeys(misuse.misuse for result in comparison.results for misuse in result.misuses))
    if not names:
        return None
    rows = []
    for result in comparison.results:
        if result.misuses:
            outcomes = {misuse.misuse: misuse for misuse in result.misuses}
            cells = []
            for name in names:
                found = outcomes.get(name)
                off = f" ({error_text(found.step_error)})" if found and found.step_error else ""
                cells.append(f"{found.outcome}{off}" if found else NONE)
            rows.append((result.name, *cells))
    return Table(
        headings=("variant", *names),
        rows=tuple(rows),
        words=frozenset(range(len(names) + 1)),
        note="each done once in the middle of an accumulation window; in brackets the relative error of that update",
    )


def projection_table(steps: Sequence[ProjectedStep], projection: Projection) -> Table:
    """Projected steps, labelled as such."""
    rows = [
        (
            step.variant,
            f"{step.world_size:,}",
            f"{step.global_batch_size:,}",
            count_text(step.calls),
            bytes_text(step.bytes_sent),
            seconds_text(step.transfer_seconds),
            f"{100 * step.least_latency_share:.0f} to {100 * step.ring_latency_share:.0f} %",
        )
        for step in steps
    ]
    return Table(
        headings=("variant", "ranks", "batch", "calls", "sent/step", "transfer", "latency"),
        rows=tuple(rows),
        note=f"{ASSUMPTIONS}; {bytes_text(projection.bytes_per_second)} a second and rank,"
        f" {seconds_text(projection.latency_seconds)} of latency; batch: global; sent round a ring; transfer: what"
        " the bytes take; latency: its share of the communication time, with the fewest messages and round a ring",
    )


def run_facts(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """What was run, where, by which versions: heading and text."""
    spec, work = comparison.spec, comparison.spec.workload
    cuts = {f"{v.micro_batch_size} x {v.gradient_accumulation_steps}": None for v in spec.variants}
    yield (
        "global batch",
        f"{spec.global_batch_size} = micro-batch x accumulation ({', '.join(cuts)}) x {spec.world_size}",
    )
    yield "steps", f"{spec.steps}, of which the first {spec.warmup} are not timed"
    model = (
        f"{work.layers} layers, width {work.width}, {work.heads} heads, vocabulary {work.vocabulary},"
        f" up to {work.sequence_length} tokens"
    )
    if work.kind != "text":
        model = f"{work.kind} {work.path or ''}".strip()
    yield "workload", f"{model}; {comparison.parameters:,} parameters, seed {work.seed}"
    clipping = f"clipped at {spec.gradient_clipping:g}" if spec.gradient_clipping else "not clipped"
    yield "training", f"{spec.optimizer}, learning rate {spec.learning_rate:g}, {clipping}, {spec.dtype}, {spec.device}"
    if comparison.versions:
        yield "versions", ", ".join(f"{name} {version}" for name, version in comparison.versions.items())
    if comparison.machine:
        yield "machine", ", ".join(f"{name} {value}" for name, value in comparison.machine.items())
