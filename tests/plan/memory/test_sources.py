"""Every line of DeepSpeed that an estimate cites holds what is cited, in the release that it is cited of."""

from __future__ import annotations

import re
from importlib.metadata import version
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import pytest

from ds_accum.batch import ParallelLayout
from ds_accum.errors import DSAccumError
from ds_accum.plan.memory import estimate_memory
from ds_accum.plan.shapes import read_shape
from ds_accum.plan.training import TrainingSetup

pytestmark = pytest.mark.engine

RELEASE = "0.19.8"

# file:line -> what stands there.
CITED = {
    "runtime/bf16_optimizer.py:182": "self.fp32_groups_flat_partition.append",
    "runtime/bf16_optimizer.py:191": "fp32_flat_buffer = torch.zeros_like",
    "runtime/bf16_optimizer.py:417": "param_partition.grad = grad_partition.to(",
    "runtime/bf16_optimizer.py:612": "def clear_lp_grads(self, set_to_none=False)",
    "runtime/comm/coalesced_collectives.py:122": "tensor_partition_flat_buffer = instrument_w_nvtx(torch.cat)",
    "runtime/engine.py:3095": "self.buffered_allreduce_fallback(grads=grads",
    "runtime/engine.py:3796": "tensor = self.flatten(bucket)",
    "runtime/engine.py:3801": "tensor_to_allreduce = tensor.to(self.communication_data_type)",
    "runtime/fp16/fused_optimizer.py:100": "self.fp32_groups_flat.append",
    "runtime/fp16/fused_optimizer.py:285": "grads_groups_flat.append(",
    "runtime/fp16/unfused_optimizer.py:222": "fp32_param.grad = fp16_param.grad.to(fp32_param.dtype)",
    "runtime/swap_tensor/optimizer_utils.py:187": "self.swap_buffer_manager = SwapBufferManager(",
    "runtime/swap_tensor/partitioned_param_swapper.py:124": "self.buffers = torch.empty(",
    "runtime/zero/parameter_offload.py:317": "def mark_persistent_parameters",
    "runtime/zero/partitioned_param_coordinator.py:453": "max_params_to_prefetch = min(",
    "runtime/zero/stage3.py:1172": "self.fp32_partitioned_groups_flat.append(converted.clone().detach())",
    "runtime/zero/stage3.py:1338": "subgroup_gradient_buffer = torch.zeros(",
    "runtime/zero/stage3.py:1636": "new_grad_tensor = bucket.buffer.narrow(",
    "runtime/zero/stage3.py:2686": "single_grad_partition = self.flatten(",
    "runtime/zero/stage3.py:782": "bucket.buffer = torch.empty(self.reduce_bucket_size",
    "runtime/zero/stage3.py:791": "self.grad_partitions_flat_buffer: Tensor = torch.zeros(",
    "runtime/zero/stage3.py:900": "flat_buffer_size = max(0, self.max_params_in_cpu",
    "runtime/zero/stage3.py:972": "self.lp_param_buffer = defragment(",
    "runtime/zero/stage_1_and_2.py:1042": "avg_new = self.get_all_grad_tensors(",
    "runtime/zero/stage_1_and_2.py:1237": "param.grad_accum = param.grad.to(self.gradient_accumulation_dtype)",
    "runtime/zero/stage_1_and_2.py:1270": "flat_partition = torch.zeros(partition_size",
    "runtime/zero/stage_1_and_2.py:1449": "self.extra_large_param_to_reduce[comm_dtype] = param",
    "runtime/zero/stage_1_and_2.py:1824": "buffer = torch.zeros(param.numel(), dtype=param.dtype, device=self.device)",
    "runtime/zero/stage_1_and_2.py:2192": "self.grads_in_partition = torch.empty(",
    "runtime/zero/stage_1_and_2.py:2293": "def reduce_ready_partitions_and_remove_grads",
    "runtime/zero/stage_1_and_2.py:2367": "tensor = self.flatten(bucket)",
    "runtime/zero/stage_1_and_2.py:3114": "flat_grad_partition = self.flatten_dense_tensors_aligned(",
    "runtime/zero/stage_1_and_2.py:3118": "single_grad_partition = flat_grad_partition.to(",
    "runtime/zero/stage_1_and_2.py:3266": "buf_0 = torch.empty(int(self.reduce_bucket_size)",
    "runtime/zero/stage_1_and_2.py:509": "self.bit16_groups_flat.append(flattened_buffer)",
    "runtime/zero/stage_1_and_2.py:560": "weights_partition = self.parallel_partitioned_bit16_groups[i]",
    "runtime/zero/stage_1_and_2.py:567": "temp_buffer_bit16 = torch.full(weights_partition.shape",
    "runtime/zero/stage_1_and_2.py:653": "self.temp_grad_buffer_for_cpu_offload = torch.zeros(",
    "runtime/zero/stage_1_and_2.py:659": "self.temp_grad_buffer_for_gpu_offload = torch.zeros(",
    "runtime/zero/stage_1_and_2.py:937": "single_grad_partition = torch.zeros(",
}


def sources() -> set[str]:
    """Of the lines of every kind of estimate."""
    found = set()
    for stage, dtype, accumulated, offload, parameters, optimizer, stages in product(
        range(4),
        ("fp32", "bf16", "fp16"),
        (None, "fp32"),
        ("none", "cpu", "nvme"),
        ("none", "nvme"),
        ("adamw", "sgd", "muon"),
        (1, 2),
    ):
        layout = ParallelLayout(world_size=8, pipeline_parallel_size=stages)
        try:
            setup = TrainingSetup(
                zero_stage=stage,
                micro_batch_size=1,
                gradient_accumulation_steps=2,
                sequence_length=1024,
                dtype=dtype,  # type: ignore[arg-type]
                grad_accum_dtype=accumulated,  # type: ignore[arg-type]
                optimizer=optimizer,  # type: ignore[arg-type]
                offload_optimizer=offload,  # type: ignore[arg-type]
                offload_parameters=parameters,  # type: ignore[arg-type]
            )
            estimate = estimate_memory(read_shape("gpt-125m"), layout, setup)
        except DSAccumError:
            continue
        found |= {line.source for memory in estimate.stages for line in memory.lines}
    return found


def cited() -> set[str]:
    places = set()
    for source in sources():
        if source.startswith("DeepSpeed"):
            assert source.startswith(f"DeepSpeed {RELEASE}, "), source
            places |= set(re.findall(r"[\w/]+\.py:\d+", source))
    return places


def test_every_citation_is_listed_here() -> None:
    assert cited() == CITED.keys()


@pytest.mark.parametrize("place", CITED)
def test_what_is_cited_stands_there(place: str) -> None:
    if version("deepspeed") != RELEASE:
        pytest.skip(f"lines are cited of DeepSpeed {RELEASE}")
    spec = find_spec("deepspeed")
    assert spec is not None and spec.origin is not None
    name, _, number = place.partition(":")
    line = (Path(spec.origin).parent / name).read_text("utf-8").splitlines()[int(number) - 1]
    assert CITED[place] in line
