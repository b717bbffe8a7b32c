"""What one rank needs to train: bytes by part, each with its formula and source, for every kind of pipeline stage.

estimate = estimate_memory(shape, layout, training)
estimate.peak_bytes                # of the fullest stage, margin included
estimate.fullest.lines             # Line(part="parameters", bytes=..., formula="...", source="...")
"""

from ds_accum.plan.memory.estimate import MemoryEstimate, estimate_memory
from ds_accum.plan.memory.line import MOMENTS, Line, Moment, Part, StageMemory
from ds_accum.plan.memory.margin import Margin

__all__ = ["MOMENTS", "Line", "Margin", "MemoryEstimate", "Moment", "Part", "StageMemory", "estimate_memory"]
