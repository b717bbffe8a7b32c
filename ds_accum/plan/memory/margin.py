"""Margin: what no formula here counts, as a stated assumption beside the lines that are counted.

    1 GiB    the driver's context, the libraries' code and workspaces, and the communication library's buffers
    5 %      of all else: the allocator's rounding and fragmentation

Both are assumptions, which is why they are a line of their own and can be changed. With them the published case of a
530-billion-parameter model under ZeRO-3 comes out on both sides, though narrowly and only with dropout, as such models
were trained: on GPUs of 80 GB, of which the driver leaves 79.15 GiB = 85.0 GB, it did not fit 560 with a micro batch of
4, here 85.3 GB, and it did fit 640, here 83.3 GB (Narayanan et al. 2021, arXiv 2104.04473, table 2).
"""

from __future__ import annotations

from dataclasses import dataclass

from ds_accum.batch.wording import require_integer
from ds_accum.errors import ConfigError
from ds_accum.plan.memory.line import Line, make_line

__all__ = ["Margin"]

_LARGEST_SHARE = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Margin:
    """What is left free. Raises ConfigError if it is negative or no number."""

    context_bytes: int = 1024**3
    share: float = 0.05

    def __post_init__(self) -> None:
        require_integer(self.context_bytes, name="context bytes", minimum=0, error=ConfigError)
        share: object = self.share
        if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share <= _LARGEST_SHARE:
            raise ConfigError(f"a share of {str(share)[:40]} can't be left free", remedy="give a number from 0 to 10")

    def line(self, counted_bytes: int) -> Line:
        """The margin on top of what is counted at the fullest moment."""
        return make_line(
            "margin",
            "margin for what is not counted",
            self.context_bytes + round(self.share * counted_bytes),
            "{context} B + {percent} % of {counted} B",
            "an assumption: context, fragmentation and short-lived tensors",
            context=self.context_bytes,
            percent=self.share * 100,
            counted=counted_bytes,
        )
