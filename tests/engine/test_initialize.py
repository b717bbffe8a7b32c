"""`ds_accum.initialize` is called as `deepspeed.initialize` is; what the engine can't do exactly, it refuses by name."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from launch import Answer, Job, launch

_AFTER_BUILDING: dict[str, tuple[str, dict[str, Any]]] = {
    "no optimizer": ("ConfigError: ds_accum.initialize does not take an engine without an optimizer", {}),
    "experts": ("ConfigError: ds_accum.initialize does not take DeepSpeed's mixture-of-experts layers", {"stage": 1}),
    "boundary, unmanaged": (
        'ConfigError: ds_accum.initialize does not take "reduction": "boundary" with managed_gradient_accumulation off',
        {
            "stage": 2,
            "managed_gradient_accumulation": False,
            "zero": {"overlap_comm": False},
            "block": {"reduction": "boundary"},
        },
    ),
    "unknown wrapper": ("ConfigError: ds-accum does not know how Wrapper applies gradients", {}),
}

_BY_CONFIG: dict[str, tuple[dict[str, Any], str]] = {
    "DeepCompile": ({"compile": {"deepcompile": True}}, "DeepCompile (compile.deepcompile)"),
    "autocast in fp16": (
        {"torch_autocast": {"enabled": True, "dtype": "float16"}},
        "torch_autocast in fp16 (torch_autocast.dtype)",
    ),
    "ZenFlow": (
        {"zero_optimization": {"stage": 2, "zenflow": {"topk_ratio": 0.1}, "offload_optimizer": {"device": "cpu"}}},
        "ZenFlow (zero_optimization.zenflow)",
    ),
    "SuperOffload": (
        {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "super_offload": True}}},
        "SuperOffload (zero_optimization.offload_optimizer.super_offload)",
    ),
    "1-bit Adam": ({"optimizer": {"type": "OneBitAdam", "params": {"lr": 1e-3}}}, "1-bit optimizers (optimizer.type)"),
    "sums at stage 0": (
        {"gradient_allreduce_op": "sum"},
        "summed gradients without a factor (gradient_allreduce_op)",
    ),
    "sequence parallel by config": (
        {"sequence_parallel_size": 2, "data_parallel_size": 1},
        "sequence parallelism through the config (sequence_parallel_size)",
    ),
}
_MISTAKES = (
    ({"normalisation": "token"}, "ds_accum.normalisation is no field of the ds_accum block"),
    ({"normalization": "tokens"}, "ds_accum.normalization must be"),
    ({"counting": {"shift": "yes"}}, "ds_accum.counting.shift must be true or false"),
    ({"initial_tokens": 0}, "ds_accum.initial_tokens must be at least 1"),
    ([], "ds_accum must be an object of settings"),
)

Answers = Mapping[str, Answer]


@pytest.fixture(scope="module")
def answers() -> Answers:
    jobs = [
        Job(name=name, function=f"starting:{name}")
        for name in ("config_in_every_form", "everything_of_the_client", "disabled")
    ]
    jobs += [
        Job(name=what, function="starting:refused_after_building", arguments={"what": what, "settings": settings})
        for what, (_, settings) in _AFTER_BUILDING.items()
    ]
    jobs += [
        Job(name=f"hybrid, ZeRO-{stage}", function="starting:hybrid", arguments={"stage": stage}) for stage in (0, 2, 3)
    ]
    return launch(jobs)


def test_a_config_is_taken_in_every_form_that_deepspeed_takes(answers: Answers) -> None:
    answers["config_in_every_form"].value()
    for found in answers["config_in_every_form"].values:
        assert len(found) == 6
        assert found == dict.fromkeys(found, pytest.approx(3.0))


def test_optimizer_scheduler_data_and_collate_function_of_the_client_are_used(answers: Answers) -> None:
    answers["everything_of_the_client"].value()
    for found in answers["everything_of_the_client"].values:
        # The samples 0 to 7, two a micro-batch, on two ranks: one window.
        assert found["moves"] == pytest.approx([0.0, 3.5])
        assert found["rates"] == [1.0, 0.5]
        assert found["same optimizer"]


def test_the_switch_in_the_environment_gives_back_the_stock_engine(answers: Answers) -> None:
    assert answers["disabled"].value() == {
        "1": "DeepSpeedEngine",
        "yes": "DeepSpeedEngine",
        "false": "TokenWeightedEngine",
        "No": "TokenWeightedEngine",
        "0": "TokenWeightedEngine",
        "": "TokenWeightedEngine",
    }


@pytest.mark.parametrize("stage", [0, 2, 3])
def test_a_hybrid_engine_stays_one_and_is_weighed_by_tokens(stage: int, answers: Answers) -> None:
    answers[f"hybrid, ZeRO-{stage}"].value()
    for found in answers[f"hybrid, ZeRO-{stage}"].values:
        assert found == {"class": "TokenWeightedDeepSpeedHybridEngine", "both": True, "moved": pytest.approx(3.0)}


@pytest.mark.parametrize("what", _AFTER_BUILDING)
def test_an_engine_that_only_deepspeed_can_tell_of_is_refused(what: str, answers: Answers) -> None:
    answers[what].value()
    for said in answers[what].values:
        assert said.startswith(_AFTER_BUILDING[what][0])
        # It is asked of the wrapper alone, without `initialize`, which has the remedy in the text.
        assert what == "unknown wrapper" or re.search("; (pass|use) ", said), said


# --- before anything is built -----------------------------------------------------------------------------------------


def _forms(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    path = folder / "ds_config.json"
    path.write_text(json.dumps(config), "utf-8")
    word = base64.urlsafe_b64encode(json.dumps(config).encode()).decode()
    return {"mapping": config, "path": str(path), "base64": word}


def _refusal(config: Any) -> str:
    """What `initialize` says to a config, having built nothing: there is not even a model."""
    import torch.distributed

    import ds_accum
    from ds_accum.errors import ConfigError

    with pytest.raises(ConfigError) as caught:
        ds_accum.initialize(model=None, config=config)
    assert not torch.distributed.is_initialized()
    # In a traceback, too.
    assert caught.value.remedy and str(caught.value) == f"{caught.value.message}; {caught.value.remedy}"
    return str(caught.value)


@pytest.mark.parametrize("form", ["mapping", "path", "base64"])
@pytest.mark.parametrize(("block", "message"), _MISTAKES)
def test_a_mistake_in_the_block_is_said_before_anything_is_built(
    block: Any, message: str, form: str, tmp_path: Path
) -> None:
    config = {"train_micro_batch_size_per_gpu": 1, "ds_accum": block}
    assert message in _refusal(_forms(config, tmp_path)[form])


@pytest.mark.parametrize("form", ["mapping", "path", "base64"])
@pytest.mark.parametrize("name", _BY_CONFIG)
def test_what_the_config_alone_tells_is_refused_before_anything_is_built(name: str, form: str, tmp_path: Path) -> None:
    values, refused = _BY_CONFIG[name]
    config = {"train_micro_batch_size_per_gpu": 1, **values}
    assert f"ds_accum.initialize does not take {refused}, because " in _refusal(_forms(config, tmp_path)[form])


def test_a_token_counter_that_can_not_be_called_is_refused_before_anything_is_built() -> None:
    import ds_accum
    from ds_accum.errors import ConfigError

    with pytest.raises(ConfigError, match="token_counter is a int; pass a function that is called like the model"):
        ds_accum.initialize(model=None, config={}, token_counter=3)  # type: ignore[arg-type]


def test_every_refusal_of_a_config_is_tried_here() -> None:
    from ds_accum.config.support import ENGINE_REFUSALS

    # Those that name a release are for others than the one that is installed.
    names = [refusal.name for refusal in ENGINE_REFUSALS if " DeepSpeed 0." not in refusal.name]
    assert [refused.partition(" (")[0] for _, refused in _BY_CONFIG.values()] == names


def test_a_file_that_is_not_there_is_left_to_deepspeed_to_say() -> None:
    import ds_accum
    from ds_accum.errors import DSAccumError

    with pytest.raises(Exception, match=r"(?i)deepspeed|model") as caught:
        ds_accum.initialize(model=None, config="no_such_file.json")
    assert not isinstance(caught.value, DSAccumError)
