"""Every exception of ds-accum, so that one `except DSAccumError` catches them all.

    DSAccumError                      root
    ├── ConfigError (ValueError)      a config or a launch that its author can change
    │   ├── LayoutError               the parallel degrees do not fit the world size
    │   └── BatchError                the batch sizes do not add up
    ├── UsageError (ValueError)       a command or a function called wrongly
    ├── AccumulationError (RuntimeError)  a training loop that would get another gradient than it asks for
    │   ├── CountError                how many tokens a loss stands for is unknown, or can't be
    │   ├── EmptyWindowError          no rank has a counted token in a whole accumulation window
    │   ├── NonFiniteLossError        a loss of the window is infinite or not a number
    │   └── MisuseError               the loop breaks the accumulation window; a subclass for each way, in engine/guards
    └── FixError                      a fix of ours that is wrong, found out before anything was written

The message is one sentence of fact with its numbers, in lower case, without a full stop; `remedy` says what to do.
Where an error ends in a traceback, on some rank of a job, its text says both; the command line prints them apart.
Subclass one of these where a new situation can be handled on its own; add it to the tree above.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Only for the annotations: `ds_accum.batch` imports this module, never the other way round.
    from collections.abc import Mapping

    from ds_accum.batch.divisibility import Indivisible, Neighbours
    from ds_accum.batch.imbalance import Imbalance

__all__ = [
    "AccumulationError",
    "BatchError",
    "ConfigError",
    "CountError",
    "DSAccumError",
    "EmptyWindowError",
    "FixError",
    "LayoutError",
    "MisuseError",
    "NonFiniteLossError",
    "UsageError",
]


class DSAccumError(Exception):
    """The root of the tree. `error.message` is the fact, `error.remedy` what to do about it, or None."""

    remedy: str | None

    shows_remedy: bool = False
    """Whether `str(error)` says both; else it is the message alone."""

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy

    @property
    def message(self) -> str:
        """The fact alone."""
        return super().__str__()

    def __str__(self) -> str:
        return self.message if self.remedy is None or not self.shows_remedy else f"{self.message}; {self.remedy}"


class ConfigError(DSAccumError, ValueError):
    """A config or a launch asks for something that can't be; its author can change it."""


class LayoutError(ConfigError):
    """The parallel degrees do not fit the world size.

    `indivisible` holds the division that leaves a remainder, None where a value is no positive integer. `legal` maps
    each field of ParallelLayout that could be changed alone to the nearest values at which the whole layout fits.
    """

    indivisible: Indivisible | None
    legal: Mapping[str, Neighbours]

    def __init__(
        self,
        message: str,
        *,
        remedy: str | None = None,
        indivisible: Indivisible | None = None,
        legal: Mapping[str, Neighbours] | None = None,
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.indivisible = indivisible
        self.legal = {} if legal is None else legal


class BatchError(ConfigError):
    """Global batch = micro batch x data parallel x accumulation does not hold, or can't be derived.

    `imbalance` holds the equation and the legal values around each number, for whoever wants to say it in other
    words; None where a value is missing or no positive integer.
    """

    imbalance: Imbalance | None

    def __init__(self, message: str, *, remedy: str | None = None, imbalance: Imbalance | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.imbalance = imbalance


class UsageError(DSAccumError, ValueError):
    """A command or a function was called with arguments that make no sense, whatever the config says."""

    @classmethod
    def because(cls, failed: str, error: Exception, *, remedy: str | None = None) -> UsageError:
        """What failed, and what the system says about it: "can't read a.json: permission denied"."""
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return cls(f"{failed}: {reason[:1].lower()}{reason[1:]}", remedy=remedy)


class AccumulationError(DSAccumError, RuntimeError):
    """Going on would give another gradient than the training loop asks for. It ends in a traceback on some rank."""

    shows_remedy = True


class CountError(AccumulationError, ValueError):
    """How many tokens a loss stands for is not known, or the number given can't be."""


class EmptyWindowError(AccumulationError):
    """No rank has a counted token in a whole accumulation window, and the config asks to be told."""


class NonFiniteLossError(AccumulationError):
    """A loss of the window is infinite or not a number, and the config asks to be told."""


class MisuseError(AccumulationError):
    """The training loop breaks the accumulation window. `ds_accum.on_misuse` says whether this is raised.

    The subclasses are in `ds_accum.engine.guards`, one beside each guard.
    """


class FixError(DSAccumError):
    """A fix does not do what it says: a bug of ds-accum, found before anything was written."""
