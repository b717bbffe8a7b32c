"""The spread of tokens over experts as a section: what accumulation mends of it, and what it can't."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ds_accum.plan.experts import ExpertAccount
from ds_accum.plan.reports.exact import digits
from ds_accum.reporting import Section, Table, count_text, plain

__all__ = ["expert_json", "expert_section"]


def expert_section(account: ExpertAccount) -> Section:
    """Paragraphs about the batch of an expert, and a table with a row for each accumulation."""
    routing = account.routing
    own, needed = account.ledger.gradient_accumulation_steps, account.needed_accumulation
    rows = []
    for window in account.windows:
        steps = window.gradient_accumulation_steps
        marks = [mark for mark, at in ((" (now)", own), (" (enough)", needed)) if at == steps]
        rows.append(
            (
                f"{digits(steps)}{''.join(marks)}",
                digits(window.tokens),
                count_text(round(window.mean_tokens, 2)),
                _percent(window.spread),
                _percent(window.noise),
                _percent(window.imbalance),
                _few(window.idle_experts),
            )
        )
    headings = ("accumulation", "tokens", "an expert", "spread", "of chance", "of the router", "idle")
    return Section(
        title=f"{routing.num_experts} experts, {routing.experts_per_token} a token, {routing.name} routing",
        paragraphs=tuple(_about(account)),
        table=Table(headings=headings, rows=tuple(rows), note=_NOTE),
    )


_NOTE = (
    "tokens: of the window, over all ranks; an expert: tokens of one, on average; spread: how far the experts are from"
    " it, root mean square, sqrt(chance^2 + router^2), chance^2 = E / (k^2 T) x sum p (1 - p), router^2 = E / k^2 x"
    " sum (p - k/E)^2; idle: experts that are expected to get no token."
)


def expert_json(account: ExpertAccount) -> dict[str, Any]:
    """The same for a program."""
    routing = account.routing
    return {
        "routing": {
            "name": routing.name,
            "num_experts": routing.num_experts,
            "experts_per_token": routing.experts_per_token,
            "probabilities": plain(routing.probabilities),
        },
        "windows": plain(account.windows),
        "experts_per_rank": plain(account.experts_per_rank),
        "tokens_of_copy": plain(account.tokens_of_copy),
        "copies": account.copies,
        "tokens_of_expert": plain(account.tokens_of_expert),
        "max_spread": plain(account.max_spread),
        "needed_accumulation": account.needed_accumulation,
    }


def _about(account: ExpertAccount) -> Iterator[str]:
    yield (
        f"A rank has {count_text(float(account.experts_per_rank))} of them; {digits(account.copies)} ranks have the"
        f" same. Such a copy gets {count_text(float(account.tokens_of_copy))} tokens a micro-batch, from every rank of"
        f" its expert-parallel group; summed over copies and accumulation an expert has seen"
        f" {count_text(float(account.tokens_of_expert))} tokens in a step, on average."
    )
    window = next(
        window
        for window in account.windows
        if window.gradient_accumulation_steps == account.ledger.gradient_accumulation_steps
    )
    if window.imbalance:
        yield (
            f"Accumulation can't mend the router: its favourite gets {count_text(round(window.most_tokens, 2))} tokens"
            f" a step and its last {count_text(round(window.fewest_tokens, 2))}, and a spread of"
            f" {_percent(window.imbalance)} stays whatever the window; only a balancing loss or bias changes it."
        )
    if account.max_spread is not None:
        yield _about_needed(account)


def _about_needed(account: ExpertAccount) -> str:
    assert account.max_spread is not None
    wanted = _percent(float(account.max_spread))
    if account.needed_accumulation is None:
        return f"No accumulation brings the spread to {wanted}: that of the router alone is more."
    own = account.ledger.gradient_accumulation_steps
    said = f"Accumulation {digits(account.needed_accumulation)} brings the spread to {wanted} or less"
    return f"{said}; {digits(own)} does already." if own >= account.needed_accumulation else f"{said}."


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %" if share < 10 else f"{100 * share:,.0f} %"


def _few(number: float) -> str:
    return "0" if number < 0.005 else f"{number:.2f}" if number < 10 else f"{number:,.0f}"
