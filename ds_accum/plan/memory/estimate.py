"""estimate_memory: the bytes of one rank by part, for each kind of pipeline stage; the fullest one decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ds_accum.batch import ParallelLayout
from ds_accum.plan.memory.activations import activation_lines
from ds_accum.plan.memory.buffers import buffer_lines
from ds_accum.plan.memory.checks import require_legal
from ds_accum.plan.memory.gradients import gradient_lines
from ds_accum.plan.memory.holdings import holdings_of, holdings_of_tensors
from ds_accum.plan.memory.line import ALWAYS, Line, Part, StageMemory
from ds_accum.plan.memory.logits import logit_lines
from ds_accum.plan.memory.margin import Margin
from ds_accum.plan.memory.optimizer_state import optimizer_lines
from ds_accum.plan.memory.parameters import parameter_lines
from ds_accum.plan.memory.stages import Stage, forwards_in_flight, stages_of
from ds_accum.plan.shape import ModelShape
from ds_accum.plan.training import TrainingSetup

__all__ = ["MemoryEstimate", "estimate_memory", "model_state_lines"]


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryEstimate:
    """The memory of one rank by pipeline stage, in bytes; of stages alike the fullest, unless all were asked for."""

    shape: ModelShape
    layout: ParallelLayout
    training: TrainingSetup
    stages: tuple[StageMemory, ...]

    @property
    def fullest(self) -> StageMemory:
        """The stage that needs most on its GPU; of equals the first."""
        return max(self.stages, key=lambda stage: stage.device_bytes)

    @property
    def peak_bytes(self) -> int:
        """On the GPU of the fullest stage at its fullest moment, margin included."""
        return self.fullest.device_bytes

    @property
    def host_bytes(self) -> int:
        """In the host's memory, for one rank of the stage that needs most there."""
        return max(stage.host_bytes for stage in self.stages)

    @property
    def nvme_bytes(self) -> int:
        """On NVMe, for one rank of the stage that needs most there."""
        return max(stage.nvme_bytes for stage in self.stages)

    def part_bytes(self, part: Part) -> int:
        """One part on the GPU of the fullest stage at its fullest moment."""
        return self.fullest.part_bytes(part)


def estimate_memory(
    shape: ModelShape,
    layout: ParallelLayout,
    training: TrainingSetup,
    *,
    margin: Margin | None = None,
    all_stages: bool = False,
) -> MemoryEstimate:
    """The memory of one rank. Without `all_stages`, only stages that can be the fullest are worked out.

    Raises LayoutError where the model can't be cut as the layout says or DeepSpeed refuses it.
    """
    require_legal(shape, layout, training)
    stages = stages_of(shape, layout.pipeline_parallel_size, training.layers_per_stage, training.virtual_stages)
    margin = margin or Margin()
    worked_out: dict[object, StageMemory] = {}
    for index, stage in enumerate(stages):
        # Of stages with the same layers the first has most micro-batches in flight.
        key: object = index if all_stages else stage
        if key not in worked_out:
            worked_out[key] = _stage_memory(shape, layout, training, margin, index, stage)
    return MemoryEstimate(shape=shape, layout=layout, training=training, stages=tuple(worked_out.values()))


def model_state_lines(tensors: Sequence[int], data_parallel_size: int, training: TrainingSetup) -> tuple[Line, ...]:
    """Parameters, gradients and optimizer state of one rank, for a model known by the sizes of its tensors.

    `tensors` are the elements of each trainable parameter, in the order of the model; it is on one pipeline stage, and
    none of it is cut by tensor parallel.
    """
    held = holdings_of_tensors(tensors, data_parallel_size)
    return (
        *parameter_lines(held, training),
        *gradient_lines(held, training, has_pipeline=False),
        *optimizer_lines(held, training, has_pipeline=False),
    )


def _stage_memory(
    shape: ModelShape, layout: ParallelLayout, training: TrainingSetup, margin: Margin, index: int, stage: Stage
) -> StageMemory:
    held = holdings_of(shape, layout, stage)
    in_flight = forwards_in_flight(layout, training, index)
    lines = [
        *parameter_lines(held, training),
        *gradient_lines(held, training, has_pipeline=layout.pipeline_parallel_size > 1),
        *optimizer_lines(held, training, has_pipeline=layout.pipeline_parallel_size > 1),
        *buffer_lines(held, layout, training),
        *activation_lines(
            shape,
            layout,
            training,
            stage,
            in_flight=in_flight,
            largest_bytes=training.element_bytes * held.largest,
        ),
        *(logit_lines(shape, layout, training) if stage.has_head else ()),
    ]
    on_device = [line for line in lines if line.place == "device"]
    counted = max(sum(line.bytes for line in on_device if moment in line.moments) for moment in ALWAYS)
    return StageMemory(
        stage=index,
        num_layers=len(stage.layers),
        forwards_in_flight=in_flight,
        lines=(*lines, margin.line(counted)),
    )
