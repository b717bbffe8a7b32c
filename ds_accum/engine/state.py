"""EngineState: everything that the token-weighted engine keeps beside DeepSpeed's own attributes."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ds_accum.config.block import DSAccumBlock
from ds_accum.engine.carriers import Carrier
from ds_accum.engine.constant import Agreement
from ds_accum.engine.counting import PendingCounts, TokenCounter
from ds_accum.engine.events import EventLog
from ds_accum.engine.guards.editing import Fingerprint
from ds_accum.engine.guards.hanging import Watchdog
from ds_accum.engine.losses import HalfPrecision
from ds_accum.engine.report import SkipReason, StepReport
from ds_accum.engine.step_log import StepLog
from ds_accum.engine.totals import Gathering, WindowTotals
from ds_accum.engine.window import AccumulationWindow
from ds_accum.errors import AccumulationError

__all__ = ["EngineState"]


@dataclass(slots=True, kw_only=True)
class EngineState:
    """What lives as long as the engine, what lives as long as a window, and what one backward leaves for the next."""

    settings: DSAccumBlock
    counter: TokenCounter
    carrier: Carrier
    group: Any
    """The process group that gradients are reduced over, and tokens are summed over."""

    divisor: float
    """What DeepSpeed divides the sum of that group's gradients by."""

    device: torch.device
    needs_look_ahead: bool
    """Whether the optimizer uses gradients before the step, so that their weight has to be right at once (Muon)."""

    log: StepLog | None
    window: AccumulationWindow
    parameters: list[Tensor]
    """The trainable parameters, in the model's order."""

    parameter_names: list[str]
    keeps_no_gradients: bool
    """Whether the parameters' gradients are gone after each backward (ZeRO-2/3, BF16_Optimizer)."""

    pending: PendingCounts = field(default_factory=PendingCounts)
    events: EventLog = field(default_factory=EventLog)
    half: HalfPrecision = field(default_factory=HalfPrecision)

    next_constant: float | None = None
    """D for the next window, from the last one."""

    agreement: Agreement | None = None
    """The first counts of a window that has no constant yet, on their way between the ranks."""

    declared: Tensor | None = None
    """Look-ahead: T of the window, from every rank's `begin_window`; a float64 scalar on the device."""

    gathering: Gathering | None = None
    totals: WindowTotals | None = None
    checked: WindowTotals | None = None
    """Those that were compared between ranks already."""

    coalescing: ExitStack | None = None
    """Closes DeepSpeed's `coalesce_grad_reduction`, which is open from the first micro-batch to the boundary."""

    compared: bool = False
    """Whether the first count was compared with its loss."""

    bare_seed: Tensor | None = None
    """The seed of a `loss.backward()` under way that no call of the engine announced."""

    bare_seeded: bool = False
    """Whether it has reached the loss that the seed is for."""

    scaled: bool = False
    """Whether the next backward is one of a loss that `scale` returned."""

    passed_through: bool = False
    """Whether the backward under way is another engine's, and leaves gradients here all the same."""

    opened_for: tuple[int, ...] = ()
    """What the batch was made of when the window was opened."""

    reduced: bool = False
    """Whether the window's last backward has been, with its reduction."""

    stepped_at: int = 0
    """Micro-batches that the window had when `step` was called last."""

    unsynchronized: int = 0
    """Backwards of the window inside `no_sync`."""

    fingerprint: Fingerprint | None = None
    """What the gradients looked like after the last backward."""

    reducing: bool = False
    """Whether DeepSpeed reduces gradients now; some releases zero what they have reduced, by `optimizer.zero_grad`."""

    clipping_by_hand: bool = False
    """Whether one of torch's clipping functions is under way on the engine's parameters."""

    in_step: bool = False
    """Whether DeepSpeed's own step is under way, which may do what the loop may not."""

    misuses: dict[str, int] = field(default_factory=dict)
    """Misuses since the last report, by the name of their class."""

    watchdog: Watchdog | None = None
    watching: ExitStack = field(default_factory=ExitStack)
    """Ends what the optimizer was made to say."""

    skipping: ExitStack | None = None
    """Open while a step is taken: whatever is entered makes the optimizer skip it."""

    skip_reason: SkipReason | None = None
    told_of_missed_steps: bool = False
    """Whether it was told that `step` seems not to be called after each backward."""

    told_skips: set[str] = field(default_factory=set)
    """Reasons for skipped steps that were told on stderr."""

    late_error: AccumulationError | None = None
    """An error about a step, raised once DeepSpeed has finished with it."""

    refused: AccumulationError | None = None
    """Why the window can't be applied, whatever comes: only a checkpoint that is loaded gives it up."""

    failure: BaseException | None = None
    """What ended a backward of this window early, so that its gradients are incomplete."""

    report: StepReport | Callable[[], StepReport] | None = None
    """What the last step did; what makes it, as long as nobody has asked."""

    finished: float = field(default_factory=time.perf_counter)
    """When the last step ended."""

    def start_window(self) -> None:
        """Forgets the window that was just applied, skipped or given up."""
        self.window = self.window.next()
        self.pending.begin_window()
        self.events.clear()
        self.agreement = self.declared = self.gathering = self.totals = None
        self.skip_reason = self.failure = self.refused = None
        self.stepped_at = 0
        self.fingerprint = self.bare_seed = None
        self.scaled = self.reduced = self.bare_seeded = self.passed_through = False
        self.unsynchronized = 0
