"""A config to start from: the few settings that a launch has to say, and those whose defaults surprise.

    starter = Starter(stage=2, layout=ParallelLayout(world_size=8), global_batch_size=256, micro_batch_size=4)
    starter.ledger()     # micro batch 4 x data parallel 8 x accumulation 8 = 256, exactly
    starter.config()     # {"train_batch_size": 256, "train_micro_batch_size_per_gpu": 4, ...}

Named although they have defaults: `gradient_clipping`, whose default moved from 0 to 1.0 in DeepSpeed 0.19.3, and the
types in which half-precision gradients add up over micro-batches and ranks, which otherwise is half precision too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ds_accum.batch import BatchLedger, ParallelLayout
from ds_accum.errors import UsageError

__all__ = ["Offload", "Precision", "Starter"]

Precision = Literal["bf16", "fp16", "fp32"]
Offload = Literal["none", "cpu", "nvme"]

AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """What somebody wants to launch. Raises UsageError where DeepSpeed can't do it, or does it wrong.

    Sizes are samples, `total_steps` optimizer steps. `huggingface` leaves to Trainer what it fills in. With
    `client_optimizer` the script passes its own. Without `total_steps` there is no scheduler.
    """

    stage: int
    layout: ParallelLayout
    precision: Precision = "bf16"
    global_batch_size: int | None = None
    micro_batch_size: int | None = None
    gradient_accumulation_steps: int | None = None
    gradient_clipping: float = 1.0
    offload: Offload = "none"
    nvme_path: str | None = None
    learning_rate: float = 1e-4
    total_steps: int | None = None
    client_optimizer: bool = False
    huggingface: bool = False

    def __post_init__(self) -> None:
        if self.precision == "fp16" and self.stage == 0:
            raise UsageError(
                "without ZeRO, fp16 gradients are divided by a loss scale that the loss was never multiplied by",
                remedy="use --stage 1, which does both, or --precision bf16",
            )
        if self.offload != "none" and self.stage == 0:
            raise UsageError("ZeRO stage 0 offloads nothing", remedy="use --stage 1, 2 or 3 with --offload")
        if self.offload == "nvme" and self.stage != 3:
            raise UsageError(f"ZeRO stage {self.stage} can't offload to NVMe", remedy="use --stage 3, or --offload cpu")
        if (self.offload == "nvme") != (self.nvme_path is not None):
            raise UsageError("--offload nvme and --nvme-path need each other", remedy="give both, or neither")
        if self.layout.pipeline_parallel_size > 1 and self.stage > 1:
            raise UsageError(
                f"DeepSpeed's pipelines don't run with ZeRO stage {self.stage}", remedy="use --stage 0 or 1 with --pp"
            )

    def ledger(self) -> BatchLedger:
        """The batch: micro batch 1 and no accumulation where nothing is said. Raises BatchError if it is uneven."""
        micro_batch_size = self.micro_batch_size
        if micro_batch_size is None and self.global_batch_size is None:
            micro_batch_size = 1
        return BatchLedger.solve(
            data_parallel_size=self.layout.data_parallel_size,
            global_batch_size=self.global_batch_size,
            micro_batch_size=micro_batch_size,
            gradient_accumulation_steps=self.gradient_accumulation_steps,
        )

    def config(self) -> dict[str, Any]:
        """The config as DeepSpeed, or Trainer, gets it."""
        ledger = self.ledger()
        return {
            **self._batch(ledger),
            "gradient_clipping": AUTO if self.huggingface else self.gradient_clipping,
            **self._optimizer(),
            **self._scheduler(),
            **self._precision(),
            "zero_optimization": {"stage": self.stage, **self._offload(), **self._saving()},
        }

    def trainer_arguments(self) -> str:
        """What to tell Trainer where the config says "auto"."""
        ledger = self.ledger()
        said = [
            f"--per_device_train_batch_size {ledger.micro_batch_size}",
            f"--gradient_accumulation_steps {ledger.gradient_accumulation_steps}",
            f"--max_grad_norm {self.gradient_clipping}",
            f"--learning_rate {self.learning_rate}",
        ]
        if self.precision != "fp32":
            said.append(f"--{self.precision}")
        if self.total_steps is not None:
            said.append(f"--max_steps {self.total_steps}")
        return " ".join(said)

    def _batch(self, ledger: BatchLedger) -> dict[str, Any]:
        if self.huggingface:
            return dict.fromkeys(
                ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"), AUTO
            )
        # Two of the three: the third is derived, so that the config holds on other worlds too.
        if self.global_batch_size is not None:
            return {
                "train_batch_size": ledger.global_batch_size,
                "train_micro_batch_size_per_gpu": ledger.micro_batch_size,
            }
        return {
            "train_micro_batch_size_per_gpu": ledger.micro_batch_size,
            "gradient_accumulation_steps": ledger.gradient_accumulation_steps,
        }

    def _optimizer(self) -> dict[str, Any]:
        # Trainer's own optimizer will do, except for states that are offloaded.
        if self.client_optimizer or (self.huggingface and self.offload == "none"):
            # Else DeepSpeed takes none but its own CPU optimizers where the states are.
            return {} if self.offload == "none" else {"zero_force_ds_cpu_optimizer": False}
        params: dict[str, Any] = {
            "lr": self.learning_rate,
            "betas": [0.9, 0.95],
            "eps": 1e-8,
            "weight_decay": 0.1,
        }
        return {"optimizer": {"type": "AdamW", "params": dict.fromkeys(params, AUTO) if self.huggingface else params}}

    def _scheduler(self) -> dict[str, Any]:
        # Trainer has its own, which a scheduler here would replace without a word.
        if self.total_steps is None or self.huggingface:
            return {}
        params = {
            "total_num_steps": self.total_steps,
            # A twentieth; of a very short training, none to speak of. Less than two is refused.
            "warmup_num_steps": max(2, self.total_steps // 20),
            "warmup_min_lr": self.learning_rate / 100,
            "warmup_max_lr": self.learning_rate,
            "warmup_type": "linear",
        }
        return {"scheduler": {"type": "WarmupDecayLR", "params": params}}

    def _precision(self) -> dict[str, Any]:
        if self.precision == "fp32":
            return {}
        said: dict[str, Any] = {self.precision: {"enabled": AUTO if self.huggingface else True}}
        if self.stage > 0:
            # Without ZeRO, DeepSpeed adds up gradients in the model's own type only.
            said["data_types"] = {"grad_accum_dtype": "fp32"}
        said["communication_data_type"] = "fp32"
        return said

    def _offload(self) -> dict[str, Any]:
        if self.offload == "none":
            return {}
        place: dict[str, Any] = {"device": self.offload}
        if self.nvme_path is not None:
            place["nvme_path"] = self.nvme_path
        place["pin_memory"] = True
        blocks = ("offload_optimizer", "offload_param") if self.stage == 3 else ("offload_optimizer",)
        return {block: dict(place) for block in blocks}

    def _saving(self) -> dict[str, Any]:
        return {"stage3_gather_16bit_weights_on_model_save": True} if self.stage == 3 else {}
