"""The pipeline of one accumulation window: who computes what when, how long the stages wait, and what they hold.

    shape = PipelineShape(schedule="1f1b", stages=4, micro_batches=8)
    bubble_share(4, 8)                                                  # Fraction(3, 11), by formula
    simulate_pipeline(shape, stage_times(4, slow={2: 1.3})).step_time   # Fraction(393, 10)
    fill_pipeline(schedule="1f1b", stages=4, max_bubble=0.15).micro_batches   # 17

The micro-batches that fill a pipeline are the gradient accumulation steps. Times are exact, and in any one unit.
"""

from ds_accum.plan.pipeline.balance import LayerCut, best_cut, even_cut, move_layers
from ds_accum.plan.pipeline.bubble import bubble_overhead, bubble_share, smallest_micro_batches
from ds_accum.plan.pipeline.filling import fill_pipeline
from ds_accum.plan.pipeline.in_flight import activation_bytes, micro_batches_in_flight
from ds_accum.plan.pipeline.orders import Instruction, Part, instruction_order
from ds_accum.plan.pipeline.shape import SCHEDULES, PipelineShape, Schedule, schedule_named
from ds_accum.plan.pipeline.simulation import PipelineTimeline, StageTimeline, simulate_pipeline
from ds_accum.plan.pipeline.summary import PipelineSummary, StageSummary, summarize_pipeline
from ds_accum.plan.pipeline.times import StageTimes, stage_times

__all__ = [
    "SCHEDULES",
    "Instruction",
    "LayerCut",
    "Part",
    "PipelineShape",
    "PipelineSummary",
    "PipelineTimeline",
    "Schedule",
    "StageSummary",
    "StageTimeline",
    "StageTimes",
    "activation_bytes",
    "best_cut",
    "bubble_overhead",
    "bubble_share",
    "even_cut",
    "fill_pipeline",
    "instruction_order",
    "micro_batches_in_flight",
    "move_layers",
    "schedule_named",
    "simulate_pipeline",
    "smallest_micro_batches",
    "stage_times",
    "summarize_pipeline",
]
