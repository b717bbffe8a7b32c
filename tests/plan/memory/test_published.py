"""The estimate beside published figures and other estimators, each difference with its reason."""

from __future__ import annotations

from typing import Any

import pytest

from ds_accum.batch import ParallelLayout
from ds_accum.plan.memory import MemoryEstimate, estimate_memory
from ds_accum.plan.memory.activations import layer_activations
from ds_accum.plan.shape import ModelShape
from ds_accum.plan.shapes import read_shape
from ds_accum.plan.training import TrainingSetup

# What a process sees of an A100 of 80 GB, the driver's part taken off.
A100_BYTES = int(79.15 * 1024**3)


def training(**given: Any) -> TrainingSetup:
    usual: dict[str, Any] = {"micro_batch_size": 1, "gradient_accumulation_steps": 1, "sequence_length": 2048}
    return TrainingSetup(**usual | given)


def as_in_2022(**given: Any) -> TrainingSetup:
    """Megatron-LM as Korthikanti et al. describe it: 16 bits, dropout, no flash attention."""
    return training(zero_stage=0, dtype="fp16", flash_attention=False, dropout=True, **given)


# ------------------------------------------------------------------- Korthikanti et al. 2022, arXiv 2205.05198

# Table 3: the model, tensor parallel, pipeline parallel, virtual stages, micro batch.
MODELS_OF_2022 = {
    "megatron-22b": (8, 1, 1, 4),
    "gpt3-175b": (8, 8, 3, 1),
    "megatron-530b": (8, 35, 3, 1),
    "megatron-1t": (8, 64, 1, 1),
}


@pytest.mark.parametrize("name", MODELS_OF_2022)
def test_a_layer_keeps_what_the_equations_of_2022_say(name: str) -> None:
    """Equations 1, 2, 4 and 6: s b h times 34 + 5 a s/h, 10 + 24/t + 5 a s/(h t), (34 + 5 a s/h)/t, and 34/t."""
    shape, (tensor, _, _, micro_batch) = read_shape(name), MODELS_OF_2022[name]
    unit = 2048 * micro_batch * shape.hidden_size
    scores = 5 * shape.num_attention_heads * 2048 / shape.hidden_size
    alone, split = ParallelLayout(world_size=1), ParallelLayout(world_size=tensor, tensor_parallel_size=tensor)
    plain = as_in_2022(micro_batch_size=micro_batch)
    sequence = as_in_2022(micro_batch_size=micro_batch, megatron_sequence_parallel=True)

    def bytes_of(layout: ParallelLayout, setup: TrainingSetup) -> float:
        return layer_activations(shape, layout, setup, has_experts=False).total

    assert bytes_of(alone, plain) == pytest.approx(unit * (34 + scores))
    assert bytes_of(split, plain) == pytest.approx(unit * (10 + 24 / tensor + scores / tensor))
    assert bytes_of(split, sequence) == pytest.approx(unit * (34 + scores) / tensor)
    each = layer_activations(shape, split, sequence, has_experts=False)
    assert each.total - each.core == pytest.approx(unit * 34 / tensor)
    assert each.layer_input == pytest.approx(unit * 2 / tensor)


@pytest.mark.parametrize(("name", "ratio", "saved"), [("gpt3-175b", 80, 0.70), ("megatron-530b", 64, 0.65)])
def test_selective_recompute_saves_what_was_published(name: str, ratio: int, saved: float) -> None:
    """Section 5: 5 a s/h is 80 for GPT-3 and 64 for MT-NLG, and repeating attention's core saves 70 % and 65 %."""
    shape = read_shape(name)
    each = layer_activations(shape, ParallelLayout(world_size=1), as_in_2022(), has_experts=False)
    assert each.core == ratio * 2048 * shape.hidden_size
    assert each.core / each.total == pytest.approx(saved, abs=0.005)


def test_interleaving_costs_the_factor_of_the_paper() -> None:
    """Section 4.2.3: the first stage keeps L (1 + (p - 1)/(p v)) layers of one micro-batch instead of L."""
    shape = read_shape("gpt3-175b")
    layout = ParallelLayout(world_size=64, tensor_parallel_size=8, pipeline_parallel_size=8)
    plain = estimate_memory(shape, layout, as_in_2022(gradient_accumulation_steps=64), all_stages=True)
    interleaved = estimate_memory(
        shape,
        layout,
        as_in_2022(gradient_accumulation_steps=64, schedule="interleaved", virtual_stages=3),
        all_stages=True,
    )
    kept = [of_layers(estimate) for estimate in (plain, interleaved)]
    assert kept[1] / kept[0] == pytest.approx(1 + 7 / (8 * 3))
    each = layer_activations(shape, layout, as_in_2022(), has_experts=False).total
    assert kept[0] == shape.num_layers * each


def of_layers(estimate: MemoryEstimate) -> int:
    return sum(line.bytes for line in estimate.stages[0].lines if line.name.startswith("kept: "))


# -------------------------------------------------------------------- Narayanan et al. 2021, arXiv 2104.04473


def of_530b(gpus: int) -> MemoryEstimate:
    """Table 2: ZeRO-3 without model parallelism on GPUs of 80 GB, micro batch 4, activations recomputed."""
    setup = training(
        zero_stage=3, micro_batch_size=4, dtype="fp16", recompute="full", flash_attention=False, dropout=True
    )
    return estimate_memory(read_shape("megatron-530b"), ParallelLayout(world_size=gpus), setup)


def test_the_530b_model_did_not_fit_560_gpus_and_did_fit_640() -> None:
    assert of_530b(560).peak_bytes > A100_BYTES
    assert of_530b(640).peak_bytes < A100_BYTES


def test_the_530b_model_fits_by_the_state_that_more_ranks_share() -> None:
    """What 80 more GPUs take off each is a part of 16 bytes a parameter, and the margin on it."""
    less = of_530b(560).peak_bytes - of_530b(640).peak_bytes
    parameters = read_shape("megatron-530b").parameters
    assert less == pytest.approx(1.05 * 16 * parameters * (1 / 560 - 1 / 640), rel=0.001)


# ------------------------------------------------------------------- Megatron-LM's report_theoretical_memory


def megatron_weights_and_optimizer(shape: ModelShape, layout: ParallelLayout, *, distributed: bool) -> float:
    """Of the fullest rank: its layers' share, the last norm's too, and one embedding; 18 bytes, or 6 + 12/DP."""
    ends = shape.vocabulary_size * shape.hidden_size
    block = shape.parameters - 2 * ends
    held = (block / layout.pipeline_parallel_size + ends) / layout.tensor_parallel_size
    if layout.pipeline_parallel_size == 1:
        held += ends / layout.tensor_parallel_size
    return held * (6 + 12 / layout.data_parallel_size if distributed else 18)


def megatron_activations(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup) -> float:
    """s b h (18 + 4 f/h) a layer and 8 s b + s b h for the embedding, for as many micro-batches as there are stages."""
    unit = setup.sequence_length * setup.micro_batch_size * shape.hidden_size
    total = unit * (18 + 4 * shape.ffn_hidden_size / shape.hidden_size) * shape.num_layers
    stages = layout.pipeline_parallel_size
    total += (8 * setup.sequence_length * setup.micro_batch_size + unit) * stages
    if stages == 1:
        total += 4 * unit * (1 + shape.vocabulary_size / shape.hidden_size)
    return total / layout.tensor_parallel_size


LLAMA = read_shape("llama-2-70b")
LLAMA_LAYOUT = ParallelLayout(world_size=64, tensor_parallel_size=8, pipeline_parallel_size=4)


def bf16_optimizer() -> TrainingSetup:
    """The nearest that DeepSpeed has to Megatron-LM's distributed optimizer, with selective recompute."""
    return training(
        zero_stage=1,
        sequence_length=4096,
        gradient_accumulation_steps=16,
        grad_accum_dtype="fp32",
        communication_dtype="fp32",
        recompute="selective",
        megatron_sequence_parallel=True,
    )


def test_weights_and_optimizer_are_megatrons_and_the_gradients_that_deepspeed_keeps_twice() -> None:
    estimate = estimate_memory(LLAMA, LLAMA_LAYOUT, bf16_optimizer(), all_stages=True)
    first = estimate.stages[0]
    counted = sum(first.part_bytes(part, "loss") for part in ("parameters", "gradients", "optimizer"))
    twice = 2 * (LLAMA.parameters / 4 / 8)
    expected = megatron_weights_and_optimizer(LLAMA, LLAMA_LAYOUT, distributed=True)
    # Norms are whole on every tensor-parallel rank, which Megatron-LM's report cuts too.
    assert counted - twice == pytest.approx(expected, rel=0.01)


def test_activations_are_megatrons_for_the_shape_that_its_formula_is_of() -> None:
    """Its formula has no grouped heads, no gate, and counts the dropout masks of a model with dropout."""
    shape = read_shape("gpt3-175b")
    layout = ParallelLayout(world_size=64, tensor_parallel_size=8, pipeline_parallel_size=8)
    setup = as_in_2022(gradient_accumulation_steps=64, recompute="selective", megatron_sequence_parallel=True)
    first = estimate_memory(shape, layout, setup, all_stages=True).stages[0]
    counted = sum(
        line.bytes
        for line in first.lines
        if line.name.startswith("kept: ") or line.name == "dropout mask of the embedding"
    )
    assert counted == pytest.approx(megatron_activations(shape, layout, setup), rel=0.001)


def test_grouped_heads_and_a_gate_are_what_megatrons_activations_leave_out() -> None:
    """LLaMA-2-70B: 34 + gate - grouped keys - dropout: 8 + 4 + 0.5 + 3 x 3.5 x 2 = 33.5 against 18 + 4 x 3.5 = 32."""
    layout = ParallelLayout(world_size=8, tensor_parallel_size=8)
    each = layer_activations(LLAMA, layout, bf16_optimizer(), has_experts=False)
    unit = 4096 * LLAMA.hidden_size / 8
    assert each.total - each.core == pytest.approx(unit * 33.5)
    whole = megatron_activations(LLAMA, LLAMA_LAYOUT, bf16_optimizer())
    ends = (8 * 4096 + 4096 * LLAMA.hidden_size) * 4 / 8
    assert (whole - ends) / LLAMA.num_layers == pytest.approx(unit * 32)


# -------------------------------------------------------------------------------------- DeepSpeed's estimators


@pytest.mark.engine
@pytest.mark.parametrize("gpus", [8, 64])
def test_zero_2_is_deepspeeds_estimate_less_the_gradients_that_it_counts_twice(gpus: int) -> None:
    """2 P + 18 P/D there: 2 + 4 of gradients, 4 + 8 of state; here 2 + 4 too, but only while they are converted."""
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

    shape = read_shape("llama-2-7b")
    _, theirs = estimate_zero2_model_states_mem_needs(shape.parameters, num_gpus_per_node=gpus, cpu_offload=False)
    stage = estimate_memory(shape, ParallelLayout(world_size=gpus), training(zero_stage=2)).fullest
    names = {"gradients of this rank's part", "gradients in float32, for the update"}
    ours = sum(line.bytes for line in stage.lines if line.part in ("parameters", "optimizer") or line.name in names)
    # A rank's own gradients are whole tensors: more than P/D where ranks are many and tensors large.
    whole = next(line.bytes for line in stage.lines if line.name == "gradients of this rank's part")
    assert ours - whole + 2 * shape.parameters / gpus == pytest.approx(theirs, rel=1e-6)


@pytest.mark.engine
def test_zero_3_is_deepspeeds_estimate_and_the_parameters_and_what_is_gathered_of_them() -> None:
    """4 L + 18 P/D there, without the 2 P/D of the parameters themselves; here 20 P/D, and up to 1e9 gathered."""
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs

    shape = read_shape("llama-2-7b")
    largest = shape.hidden_size * shape.vocabulary_size
    _, theirs, of_layer = estimate_zero3_model_states_mem_needs(
        shape.parameters, largest, num_gpus_per_node=8, cpu_offload=False, cpu_offload_params=False
    )
    stage = estimate_memory(shape, ParallelLayout(world_size=8), training(zero_stage=3)).fullest
    names = {"gradients of this rank's part in bf16", "gradients in float32, for the update"}
    names |= {"weights in float32", "state of adamw"}
    ours = sum(line.bytes for line in stage.lines if line.name in names)
    assert ours == pytest.approx(theirs - of_layer, rel=1e-4)
    gathered = next(line.bytes for line in stage.lines if line.name == "parameters gathered and prefetched")
    assert gathered == 2 * 1_000_000_000
    assert stage.lines[0].bytes == pytest.approx(2 * shape.parameters / 8, rel=1e-4)


@pytest.mark.engine
def test_offloaded_zero_2_is_deepspeeds_16_bytes_and_what_is_staged_without_its_factor() -> None:
    """P max(4 D, 16) 1.5 there, the factor being for buffers; here 4 + 4 + 8 and the buffers themselves."""
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

    shape = read_shape("llama-2-7b")
    theirs, on_gpu = estimate_zero2_model_states_mem_needs(
        shape.parameters, num_gpus_per_node=1, cpu_offload=True, additional_buffer_factor=1
    )
    setup = training(zero_stage=2, offload_optimizer="cpu")
    estimate = estimate_memory(shape, ParallelLayout(world_size=1), setup)
    largest = shape.hidden_size * shape.vocabulary_size
    assert estimate.host_bytes - 2 * shape.parameters - 2 * largest == pytest.approx(theirs)
    assert estimate.fullest.part_bytes("parameters") == pytest.approx(on_gpu)
