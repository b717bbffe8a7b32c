"""estimate_memory: the bytes of one rank by part, for each kind of pipeline stage; the fullest one decides."""

from __future__ import annotations

from dataclasses import dataclass

from ds_accum.batch import ParallelLayout
from ds_accum.plan.memory.line import Line, Part, StageMemory
from ds_accum.plan.shape import ModelShape
from ds_accum.plan.training import ELEMENT_BYTES, TrainingSetup

__all__ = ["MemoryEstimate", "estimate_memory"]


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryEstimate:
    """The memory of one rank, by pipeline stage. All in bytes."""

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
        """On the GPU of the fullest stage, margin included."""
        return self.fullest.device_bytes

    @property
    def host_bytes(self) -> int:
        """In the host's memory, for one rank of the stage that needs most there."""
        return max(stage.host_bytes for stage in self.stages)

    def part_bytes(self, part: Part) -> int:
        """One part on the GPU of the fullest stage."""
        return self.fullest.part_bytes(part)


def estimate_memory(
    shape: ModelShape, layout: ParallelLayout, training: TrainingSetup, *, all_stages: bool = False
) -> MemoryEstimate:
    """The memory of one rank. Without `all_stages`, only stages that can be the fullest are worked out.

    Raises LayoutError where the model can't be cut as the layout says.
    """
    ranks = layout.tensor_parallel_size * layout.pipeline_parallel_size
    elements = -(-shape.parameters // ranks)
    shards = layout.pipeline_stage_size // layout.tensor_parallel_size
    held = -(-elements // shards) if training.zero_stage == 3 else elements
    sharded = -(-elements // shards) if training.zero_stage else elements
    gradients = -(-elements // shards) if training.zero_stage >= 2 else elements
    size = training.element_bytes
    lines = (
        Line(part="parameters", name="parameters", bytes=held * size, formula="", source=""),
        Line(
            part="gradients",
            name="gradients",
            bytes=gradients * ELEMENT_BYTES[training.accumulation_dtype],
            formula="",
            source="",
        ),
        Line(part="optimizer", name="optimizer", bytes=sharded * 12, formula="", source=""),
        Line(
            part="activations",
            name="activations",
            bytes=34
            * training.sequence_length
            * training.micro_batch_size
            * shape.hidden_size
            * shape.num_layers
            // ranks,
            formula="",
            source="",
        ),
    )
    stage = StageMemory(stage=0, num_layers=shape.num_layers, micro_batches_in_flight=1, lines=lines)
    return MemoryEstimate(shape=shape, layout=layout, training=training, stages=(stage,))
