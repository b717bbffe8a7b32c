"""What is read off a config about settings that can't be had together."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ds_accum.config import support
from ds_accum.config.launch import Launch
from ds_accum.config.model import DeepSpeedConfig
from ds_accum.config.schema import Version, newest_version

ADAM = {"type": "AdamW", "params": {"lr": 1e-4}}
BF16_ON_FP32 = {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}


def read(values: dict[str, Any], version: Version | None = None) -> DeepSpeedConfig:
    return DeepSpeedConfig.read(values, version=version or newest_version())


def zero(stage: int, /, **settings: Any) -> dict[str, Any]:
    return {"zero_optimization": {"stage": stage, **settings}}


# --- precision --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ({}, "fp32"),
        ({"fp16": {"enabled": True}}, "fp16"),
        ({"bf16": {"enabled": "true"}}, "bf16"),
        ({"bfloat16": {"enabled": True}}, "bf16"),
        ({"bf16": {"enabled": "auto"}}, "fp32"),
    ],
)
def test_the_model_has_the_precision_that_is_switched_on(values: dict[str, Any], dtype: str) -> None:
    assert support.model_dtype(read(values)) == dtype


def test_gradients_add_up_in_the_precision_of_the_model_unless_the_config_says_otherwise() -> None:
    assert support.accumulates_in(read({"bf16": {"enabled": True}})) == "bf16"
    assert support.accumulates_in(read(BF16_ON_FP32)) == "fp32"
    assert support.accumulates_in(read({"data_types": {"grad_accum_dtype": "FP32"}})) is None
    assert support.accumulates_in(read({"data_types": {"grad_accum_dtype": [1]}})) is None


def test_gradients_of_a_bf16_model_without_zero_added_up_in_fp32_before_0_17_6() -> None:
    values = {"bf16": {"enabled": True}}
    assert support.accumulates_in(read(values, (0, 17, 5))) == "fp32"
    assert support.accumulates_in(read(values, (0, 17, 6))) == "bf16"
    assert support.accumulates_in(read({**values, **zero(2)}, (0, 17, 5))) == "bf16"


@pytest.mark.engine
def test_the_dtype_words_are_those_of_the_installed_deepspeed() -> None:
    from deepspeed.runtime.config import DtypeEnum

    words = {word: dtype.name for dtype in DtypeEnum for word in dtype._all_values[1:]}
    assert dict(support.DTYPE_WORDS) == words


# --- ZeRO, offload and the optimizer ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "device"),
    [
        ({}, "none"),
        ({"offload_optimizer": None}, "none"),
        ({"offload_optimizer": {"device": "cpu"}}, "cpu"),
        ({"offload_optimizer": {"device": "auto"}}, "none"),
        ({"offload_optimizer": {"device": "gpu"}}, None),
        ({"cpu_offload": True}, "cpu"),
        ({"cpu_offload": False}, "none"),
    ],
)
def test_the_optimizer_is_where_the_block_or_the_deprecated_switch_puts_it(
    settings: dict[str, Any], device: str | None
) -> None:
    assert support.optimizer_device(read(zero(2, **settings))) == device


def test_parameters_are_where_their_own_block_puts_them() -> None:
    assert support.parameter_device(read(zero(3, offload_param={"device": "nvme"}))) == "nvme"
    assert support.parameter_device(read(zero(3, cpu_offload_param=True))) == "cpu"
    assert support.parameter_device(read(zero(3, offload_optimizer={"device": "cpu"}))) == "none"


def test_zero_1_with_fp32_sums_of_bf16_is_another_optimizer_unless_it_is_offloaded_to_the_cpu() -> None:
    assert support.uses_bf16_optimizer(read({**BF16_ON_FP32, **zero(1)}))
    assert support.uses_bf16_optimizer(read({**BF16_ON_FP32, **zero(1, offload_optimizer={"device": "nvme"})}))
    assert not support.uses_bf16_optimizer(read({**BF16_ON_FP32, **zero(1, offload_optimizer={"device": "cpu"})}))
    assert not support.uses_bf16_optimizer(read({**BF16_ON_FP32, **zero(2)}))
    assert not support.uses_bf16_optimizer(read({"bf16": {"enabled": True}, **zero(1)}))


@pytest.mark.parametrize(("stage", "overlaps"), [(0, False), (1, False), (2, False), (3, True)])
def test_communication_overlaps_at_stage_3_alone_unless_the_config_says_otherwise(stage: int, overlaps: bool) -> None:
    assert support.overlaps_communication(read(zero(stage))) is overlaps
    assert support.overlaps_communication(read(zero(stage, overlap_comm="auto"))) is overlaps
    assert support.overlaps_communication(read(zero(stage, overlap_comm=not overlaps))) is not overlaps
    assert support.overlaps_communication(read(zero(stage, overlap_comm="perhaps"))) is None


def test_zenflow_is_on_whenever_its_block_is_there() -> None:
    assert support.zenflow(read(zero(2, zenflow={}))) is not None
    assert support.zenflow(read(zero(2, zenflow=None))) is None
    assert support.zenflow(read(zero(2, zenflow="auto"))) is None
    assert support.zenflow(read(zero(2))) is None
    assert support.zenflow(read(zero(2, zenflow={}), (0, 17, 4))) is None, "it came with 0.17.5"


def test_an_optimizer_comes_from_the_config_or_from_the_script_or_nobody_knows() -> None:
    named, unnamed = read({"optimizer": ADAM}), read({"optimizer": {"name": "AdamW"}})
    assert support.has_optimizer(named, Launch()) is True
    assert support.has_optimizer(named, Launch(client_optimizer=False)) is True
    assert support.has_optimizer(unnamed, Launch(client_optimizer=True)) is True
    assert support.has_optimizer(unnamed, Launch(client_optimizer=False)) is False
    assert support.has_optimizer(unnamed, Launch()) is None


def test_deepspeeds_cpu_adam_is_built_from_adam_and_adamw_while_they_are_offloaded() -> None:
    offload = zero(2, offload_optimizer={"device": "cpu"})
    assert support.builds_cpu_adam(read({"optimizer": ADAM, **offload}))
    assert support.builds_cpu_adam(read({"optimizer": {"type": "ADAM"}, **offload}))
    assert not support.builds_cpu_adam(read({"optimizer": ADAM, **zero(2)}))
    assert not support.builds_cpu_adam(read({"optimizer": {"type": "SGD"}, **offload}))
    assert not support.builds_cpu_adam(read({"optimizer": {"type": "Adam", "params": {"torch_adam": True}}, **offload}))
    assert not support.builds_cpu_adam(
        read({"optimizer": ADAM, **zero(2, offload_optimizer={"device": "cpu"}, zenflow={})})
    )


def test_fp16_master_weights_count_while_fp16_is_off_since_it_is_a_model() -> None:
    values = {"fp16": {"fp16_master_weights_and_grads": True}}
    assert support.keeps_fp16_master_weights(read(values))
    assert not support.keeps_fp16_master_weights(read(values, (0, 17, 0)))
    assert support.keeps_fp16_master_weights(read({"fp16": {**values["fp16"], "enabled": True}}, (0, 17, 0)))


# --- the reduction of gradients ---------------------------------------------------------------------------------------


def test_gradients_are_averaged_unless_a_release_that_can_sum_is_told_to() -> None:
    assert support.averages_gradients(read({}))
    assert support.averages_gradients(read({"gradient_allreduce_op": 1}))
    assert not support.averages_gradients(read({"gradient_allreduce_op": "SUM"}))
    assert support.averages_gradients(read({"gradient_allreduce_op": "sum"}, (0, 19, 5)))


@pytest.mark.parametrize(
    ("values", "scatters"),
    [
        (zero(0), False),
        (zero(1), False),
        (zero(2), True),
        (zero(3), True),
        (zero(2, reduce_scatter=False), False),
        ({**zero(2), "gradient_allreduce_op": "sum"}, False),
    ],
)
def test_zero_2_and_3_scatter_gradients_that_must_not_be_scaled(values: dict[str, Any], scatters: bool) -> None:
    assert support.scatters_scaled_gradients(read(values)) is scatters


@pytest.mark.parametrize(
    ("values", "divides"),
    [
        ({}, True),
        ({"prescale_gradients": "false"}, False),
        ({"gradient_allreduce_op": "sum"}, False),
        (zero(1), False),
        ({**BF16_ON_FP32, **zero(1)}, True),
        (zero(1, reduce_scatter=False), True),
        (zero(2, reduce_scatter=False, contiguous_gradients=False), False),
        (zero(2, reduce_scatter=False, contiguous_gradients=False, offload_optimizer={"device": "cpu"}), True),
        (zero(2, reduce_scatter=False, offload_optimizer={"device": "cpu"}, zenflow={}), False),
        (zero(3), False),
        (zero(3, reduce_scatter=False, contiguous_gradients=False), True),
        (zero(2, reduce_scatter="perhaps"), False),
    ],
)
def test_the_predivide_factor_is_used_where_a_reduction_looks_at_it(values: dict[str, Any], divides: bool) -> None:
    assert support.divides_before_reducing(read(values)) is divides


# --- what ds-accum's engine refuses -----------------------------------------------------------------------------------

OFFLOADED = zero(2, offload_optimizer={"device": "cpu"})

# name -> what it refuses, and the nearest that it does not; for a release where that is another than the newest
REFUSED: dict[str, tuple[Any, ...]] = {
    "DeepCompile": ({"compile": {"deepcompile": True}}, {"compile": {"deepcompile": False}}),
    "torch_autocast in fp16": (
        {"torch_autocast": {"enabled": True, "dtype": "half"}},
        {"torch_autocast": {"enabled": True, "dtype": "bf16"}},
    ),
    "ZenFlow": (zero(2, zenflow={}), zero(2, zenflow=None)),
    "SuperOffload": (
        zero(3, offload_optimizer={"device": "cpu", "super_offload": True}),
        zero(2, offload_optimizer={"device": "cpu", "super_offload": True}),
    ),
    "1-bit optimizers": ({"optimizer": {"type": "OneBitAdam"}}, {"optimizer": {"type": "Adam"}}),
    "summed gradients without a factor": (
        {"gradient_allreduce_op": "sum"},
        {"gradient_allreduce_op": "sum", "fp16": {"enabled": True}},
    ),
    "sequence parallelism through the config": (
        {"sequence_parallel_size": 2, "data_parallel_size": 4},
        {"sequence_parallel_size": 1, "data_parallel_size": 4},
    ),
    "ZeRO-1 and 2 on DeepSpeed 0.18.7 to 0.18.9": (zero(1), zero(3), (0, 18, 9)),
    "ZeRO-1 and 2 with offload_optimizer before DeepSpeed 0.19.0": (OFFLOADED, zero(2), (0, 18, 6)),
    "BF16_Optimizer before DeepSpeed 0.19.0": (
        {**BF16_ON_FP32, **zero(1)},
        {"bf16": {"enabled": True}, **zero(1)},
        (0, 18, 6),
    ),
}


def names(values: dict[str, Any], *version: tuple[int, int, int]) -> list[str]:
    return [refusal.name for refusal in support.engine_refusals(read(values, *version))]


@pytest.mark.parametrize("refusal", support.ENGINE_REFUSALS, ids=lambda refusal: refusal.name)
def test_the_engine_refuses_what_the_table_says_and_not_its_neighbour(refusal: support.EngineRefusal) -> None:
    refused, neighbour, *version = REFUSED[refusal.name]
    assert names(refused, *version) == [refusal.name]
    assert names(neighbour, *version) == []


@pytest.mark.parametrize(
    ("values", "refusing", "taking"),
    [
        (zero(2), [(0, 18, 7), (0, 18, 9)], [(0, 18, 3), (0, 18, 6), (0, 19, 0)]),
        (OFFLOADED, [(0, 18, 3), (0, 18, 6)], [(0, 19, 0), (0, 19, 8)]),
        ({**BF16_ON_FP32, **zero(1)}, [(0, 18, 3), (0, 18, 9)], [(0, 19, 0), (0, 19, 8)]),
    ],
    ids=["flattened inside a graph", "offload", "BF16_Optimizer"],
)
def test_what_a_release_got_wrong_is_refused_for_that_release_alone(
    values: dict[str, Any], refusing: list[tuple[int, int, int]], taking: list[tuple[int, int, int]]
) -> None:
    assert all(names(values, version) for version in refusing)
    assert not any(names(values, version) for version in taking)


@pytest.mark.parametrize("refusal", support.ENGINE_REFUSALS, ids=lambda refusal: refusal.name)
def test_a_refusal_points_at_a_setting_that_asks_for_it_and_says_why(refusal: support.EngineRefusal) -> None:
    held: Any = REFUSED[refusal.name][0]
    for part in refusal.path:
        held = held[part]
    assert held is not None
    for text in (refusal.reason, refusal.remedy):
        assert text and not text.endswith(".") and "\n" not in text


def test_the_engine_starts_with_every_ready_made_config(repository: Path) -> None:
    configs = sorted((repository / "configs").glob("*.json"))
    assert configs
    assert {path.name: names(json.loads(path.read_text("utf-8"))) for path in configs} == {
        path.name: [] for path in configs
    }


# --- of any config ----------------------------------------------------------------------------------------------------

ODD_VALUES: tuple[Any, ...] = (None, True, 0, -1, 10**400, 0.5, "", "auto", "2", [], [{}], {}, {"enabled": []})
KEYS = (
    *("zero_optimization", "fp16", "bf16", "data_types", "optimizer", "compile", "torch_autocast"),
    *("gradient_allreduce_op", "prescale_gradients", "sequence_parallel_size", "data_parallel_size"),
)


def odd_configs() -> Iterator[dict[str, Any]]:
    for value in ODD_VALUES:
        yield from ({key: value} for key in KEYS)
        yield {"optimizer": {"type": value, "params": value}, **zero(3, offload_optimizer={"device": value})}
        yield {"zero_optimization": {"stage": value, "zenflow": value, "overlap_comm": value, "reduce_scatter": value}}
        yield {"torch_autocast": {"enabled": value, "dtype": value}, "data_types": {"grad_accum_dtype": value}}


@pytest.mark.parametrize("version", [(0, 14, 0), (0, 17, 0), (0, 19, 8)])
def test_no_config_is_too_odd_to_be_asked_about(version: Version) -> None:
    for values in odd_configs():
        config = read(values, version)
        for ask in (
            support.model_dtype,
            support.accumulates_in,
            support.keeps_fp16_master_weights,
            support.optimizer_device,
            support.parameter_device,
            support.zenflow,
            support.uses_bf16_optimizer,
            support.overlaps_communication,
            support.builds_cpu_adam,
            support.averages_gradients,
            support.scatters_scaled_gradients,
            support.divides_before_reducing,
            support.engine_refusals,
        ):
            ask(config)
        support.has_optimizer(config, Launch())


def test_asking_imports_neither_torch_nor_pydantic() -> None:
    program = (
        "import sys\n"
        "from ds_accum.config.model import DeepSpeedConfig\n"
        "from ds_accum.config.support import engine_refusals\n"
        "engine_refusals(DeepSpeedConfig.read({'zero_optimization': {'stage': 2}}, version=(0, 19, 8)))\n"
        "assert not {'torch', 'deepspeed', 'pydantic'} & sys.modules.keys(), sorted(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
