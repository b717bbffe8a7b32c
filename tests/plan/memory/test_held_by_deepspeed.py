"""The estimate is what a real DeepSpeed engine holds on two ranks: every stage, dtype and offload, within 1 %."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from typing import Any

import pytest
from launch import Answer, Job, launch

from ds_accum.batch import ParallelLayout
from ds_accum.plan.memory import Line, estimate_memory
from ds_accum.plan.memory.optimizer_state import uses_bf16_optimizer
from ds_accum.plan.shape import ExpertShape, ModelShape
from ds_accum.plan.training import Dtype, Offload, Optimizer, TrainingSetup

pytestmark = pytest.mark.engine

SHAPE = ModelShape(
    name="small llama",
    num_layers=12,
    hidden_size=64,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_size=16,
    ffn_hidden_size=160,
    vocabulary_size=200,
    gated_mlp=True,
    tied_embeddings=False,
    attention_bias=False,
    mlp_bias=False,
    norm="rmsnorm",
)
BUCKET = 200_000
COUNTED = ("parameters", "gradients", "optimizer", "buffers")
DTYPES: tuple[Dtype, ...] = ("fp32", "bf16", "fp16")
NAMES: dict[Optimizer, tuple[str, dict[str, Any]]] = {
    "adamw": ("AdamW", {}),
    "sgd": ("SGD", {}),
    "sgd_momentum": ("SGD", {"momentum": 0.9}),
    "adagrad": ("Adagrad", {}),
    "rmsprop": ("RMSprop", {}),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    stage: int
    dtype: Dtype = "fp32"
    accumulation: int = 2
    accumulated: Dtype | None = None
    offload: Offload = "none"
    offload_parameters: Offload = "none"
    optimizer: Optimizer = "adamw"
    persistence: int = 0
    experts: int = 0
    """Experts of each layer, spread over both ranks."""

    layers: int = SHAPE.num_layers
    inner: int = SHAPE.ffn_hidden_size

    @property
    def name(self) -> str:
        """What differs from the defaults."""
        said = [
            f"{field.name}={value}" for field in fields(self) if (value := getattr(self, field.name)) != field.default
        ]
        return " ".join(said)

    def config(self) -> dict[str, Any]:
        name, parameters = NAMES[self.optimizer]
        zero: dict[str, Any] = {
            "stage": self.stage,
            "reduce_bucket_size": BUCKET,
            "stage3_param_persistence_threshold": self.persistence,
        }
        if self.offload != "none":
            zero["offload_optimizer"] = {"device": self.offload}
        if self.offload_parameters != "none":
            zero["offload_param"] = {"device": self.offload_parameters}
        config: dict[str, Any] = {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": self.accumulation,
            "gradient_clipping": 1.0,
            "optimizer": {"type": name, "params": {"lr": 1e-3, **parameters}},
            "zero_optimization": zero,
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
        }
        if self.dtype != "fp32":
            config[self.dtype] = {"enabled": True}
        if self.dtype == "fp16":
            config["fp16"]["initial_scale_power"] = 0
        if self.accumulated is not None:
            config["data_types"] = {"grad_accum_dtype": self.accumulated}
        return config

    def training(self) -> TrainingSetup:
        return TrainingSetup(
            zero_stage=self.stage,
            micro_batch_size=1,
            gradient_accumulation_steps=self.accumulation,
            sequence_length=8,
            dtype=self.dtype,
            grad_accum_dtype=self.accumulated,
            optimizer=self.optimizer,
            offload_optimizer=self.offload,
            offload_parameters=self.offload_parameters,
            reduce_bucket_size=BUCKET,
            param_persistence_threshold=self.persistence,
        )


def cases() -> Iterator[Case]:
    for stage in range(4):
        accumulated_in: tuple[Dtype | None, ...] = (None, "fp32") if stage else (None,)
        for offload in ("none", "cpu") if stage else ("none",):
            yield Case(stage=stage, offload=offload)
            for accumulation, accumulated in product((1, 2), accumulated_in):
                yield Case(
                    stage=stage, dtype="bf16", accumulation=accumulation, accumulated=accumulated, offload=offload
                )
        for accumulated in accumulated_in:
            yield Case(stage=stage, dtype="fp16", accumulated=accumulated)
        yield Case(stage=stage, optimizer="sgd_momentum")
    for dtype in DTYPES:
        yield Case(stage=3, dtype=dtype, offload="cpu", offload_parameters="cpu")
    yield Case(stage=3, dtype="bf16", persistence=5000)
    for stage in (0, 1, 2):
        yield Case(stage=stage, dtype="bf16", experts=4)
    yield Case(stage=2, dtype="bf16", experts=4, accumulated="fp32")
    for stage in (1, 2):
        # The second of three large matrices is cut by the edge between the ranks, and its gradient kept whole on both.
        yield Case(stage=stage, dtype="bf16", layers=1, inner=2000)
    yield Case(stage=0, optimizer="sgd")
    yield Case(stage=0, optimizer="adagrad")
    yield Case(stage=2, optimizer="rmsprop")


CASES = {case.name: case for case in cases()}

PIPELINES = {
    f"pipeline {case.name}": case
    for case in (
        Case(stage=0),
        Case(stage=1),
        Case(stage=0, dtype="bf16"),
        Case(stage=1, dtype="bf16"),
        Case(stage=1, dtype="bf16", accumulated="fp32"),
        Case(stage=1, dtype="fp16"),
    )
}


@pytest.fixture(scope="module")
def answers() -> dict[str, Answer]:
    return launch(
        Job(
            name=case.name,
            function="held_by_deepspeed:weigh",
            # DeepSpeed's own operators are compiled before the ranks start; they are told by their names.
            arguments={"config": case.config(), "sizes": sizes_of(case), "operators": ["fused_adam", "cpu_adam"]},
        )
        for case in CASES.values()
    )


@pytest.fixture(scope="module")
def stages() -> dict[str, Answer]:
    return launch(
        Job(
            name=name,
            function="held_by_deepspeed:weigh_stage",
            arguments={"config": case.config(), "sizes": sizes_of(case), "stages": 2, "operators": ["fused_adam"]},
        )
        for name, case in PIPELINES.items()
    )


def sizes_of(case: Case) -> dict[str, int]:
    sizes = {key: value for key, value in asdict(SHAPE).items() if type(value) is int}
    sizes |= {"num_layers": case.layers, "ffn_hidden_size": case.inner}
    return sizes | ({"num_experts": case.experts, "expert_parallel_size": 2} if case.experts else {})


@pytest.mark.parametrize("name", PIPELINES)
def test_each_stage_of_a_pipeline_holds_what_is_estimated(stages: dict[str, Answer], name: str) -> None:
    case, answer = PIPELINES[name], stages[name]
    assert not answer.failed, answer.report
    layout = ParallelLayout(world_size=2, pipeline_parallel_size=2)
    estimate = estimate_memory(SHAPE, layout, case.training(), all_stages=True)
    for value in answer.values:
        lines = [line for line in estimate.stages[value["stage"]].lines if line.part in COUNTED]
        expected = sum(line.bytes for line in lines if "update" in line.moments)
        assert value["update"] == pytest.approx(expected, rel=0.01)


def lines_of(case: Case) -> list[Line]:
    layout, shape = ParallelLayout(world_size=2), replace(SHAPE, num_layers=case.layers, ffn_hidden_size=case.inner)
    if case.experts:
        layout = ParallelLayout(world_size=2, expert_parallel_size=2)
        experts = ExpertShape(num_experts=case.experts, experts_per_token=2, ffn_hidden_size=case.inner)
        shape = replace(shape, experts=experts)
    return [line for line in estimate_memory(shape, layout, case.training()).fullest.lines if line.part in COUNTED]


def between_micro_batches(case: Case) -> int:
    """What there is at the next loss, but for what passes by while the forward runs."""
    return sum(
        line.bytes
        for line in lines_of(case)
        if "loss" in line.moments and line.name != "parameters gathered and prefetched"
    )


def at_the_update(case: Case) -> int:
    return sum(line.bytes for line in lines_of(case) if "update" in line.moments)


def test_the_model_has_the_parameters_of_its_shape() -> None:
    held_by_deepspeed = pytest.importorskip("held_by_deepspeed")
    model = held_by_deepspeed.Llama(sizes_of(Case(stage=0)))
    assert sum(parameter.numel() for parameter in model.parameters()) == SHAPE.parameters


@pytest.mark.parametrize("name", CASES)
def test_the_estimate_is_what_deepspeed_holds(answers: dict[str, Answer], name: str) -> None:
    case, answer = CASES[name], answers[name]
    assert not answer.failed, answer.report
    # On a CPU the host's memory and the device's are one.
    assert max(value["update"] for value in answer.values) == pytest.approx(at_the_update(case), rel=0.01)
    if case.accumulation > 1:
        held = max(value["between"] for value in answer.values)
        assert held == pytest.approx(between_micro_batches(case), rel=0.01)


def test_where_a_dtype_is_accumulated_in_float32_at_stage_1_it_is_the_bf16_optimizer(
    answers: dict[str, Answer],
) -> None:
    wrapped = {name for name, answer in answers.items() if answer.value()["wrapper"] == "BF16_Optimizer"}
    assert wrapped == {name for name, case in CASES.items() if uses_bf16_optimizer(case.training(), has_pipeline=False)}
    assert wrapped
