"""The launch that a config is judged for: a verdict is about a launch, never about a file alone.

Each input is given, detected or unknown (None). What is unknown is not guessed: a finding that would need it becomes a
warning that says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from ds_accum.config.schema import Version, newest_version

if TYPE_CHECKING:
    from ds_accum.batch import ParallelLayout
    from ds_accum.config.checkpoint import Checkpoint
    from ds_accum.config.training_arguments import TrainingArguments

Framework = Literal["raw", "huggingface", "accelerate", "lightning", "gpt-neox"]
Engine = Literal["stock", "ds-accum"]

FRAMEWORKS: tuple[Framework, ...] = get_args(Framework)
# What is also understood, for short.
FRAMEWORK_ALIASES = {"hf": "huggingface"}
ENGINES: tuple[Engine, ...] = get_args(Engine)
# SUPPORTED_ACCELERATOR_LIST in deepspeed/accelerator/real_accelerator.py of 0.19.8.
ACCELERATORS = ("cuda", "cpu", "xpu", "npu", "mps", "hpu", "mlu", "sdaa", "supa", "klxpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Who starts DeepSpeed, with what, on how many ranks.

    `world_size` is the number of ranks, None if unknown. The degrees are those of the script (a pipeline module, an
    `mpu`), not those of the config. `client_optimizer` and `client_scheduler` say whether the script hands its own to
    `deepspeed.initialize`. `sequence_length` is in tokens. `hf_arguments` are those of Hugging Face's Trainer,
    `checkpoint` is what the training continues from, optimizer states included.
    """

    world_size: int | None = None
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    context_parallel_size: int = 1
    sequence_parallel_size: int = 1
    expert_parallel_size: int = 1
    deepspeed_version: Version | None = None
    framework: Framework | None = None
    client_optimizer: bool | None = None
    client_scheduler: bool | None = None
    engine: Engine | None = None
    accelerator: str = "cuda"
    sequence_length: int | None = None
    hf_arguments: TrainingArguments | None = None
    checkpoint: Checkpoint | None = None

    @property
    def version(self) -> Version:
        """The DeepSpeed release that will read the config; the newest known one unless said otherwise."""
        return self.deepspeed_version or newest_version()

    @property
    def model_parallel_size(self) -> int:
        """Ranks of the script's own layout that share their samples: tensor x pipeline x context x sequence."""
        return (
            self.tensor_parallel_size
            * self.pipeline_parallel_size
            * self.context_parallel_size
            * self.sequence_parallel_size
        )

    def layout(self) -> ParallelLayout | None:
        """The layout, None without a world size. Raises LayoutError where the degrees do not fit the world."""
        if self.world_size is None:
            return None
        from ds_accum.batch import ParallelLayout

        return ParallelLayout(
            world_size=self.world_size,
            tensor_parallel_size=self.tensor_parallel_size,
            pipeline_parallel_size=self.pipeline_parallel_size,
            context_parallel_size=self.context_parallel_size,
            sequence_parallel_size=self.sequence_parallel_size,
            expert_parallel_size=self.expert_parallel_size,
        )
