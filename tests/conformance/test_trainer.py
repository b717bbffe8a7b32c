"""What Hugging Face's own code makes of a config, beside what ds-accum says that it does.

The real `HfTrainerDeepSpeedConfig` fills in and compares, the real `DeepSpeedPlugin` of Accelerate completes; skipped
where transformers is not installed.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from ds_accum.config.document import read_text
from ds_accum.config.embedded import find_configs
from ds_accum.config.launch import Launch
from ds_accum.config.training_arguments import ARGUMENTS, TrainingArguments
from ds_accum.lint import lint_text
from ds_accum.lint.rule import Example
from ds_accum.lint.rules import RULES
from ds_accum.lint.wording import dotted

pytestmark = [
    pytest.mark.engine,
    # transformers and accelerate say many things when they are imported.
    pytest.mark.filterwarnings("ignore"),
]

HIDDEN_SIZE = 64


@pytest.fixture(scope="module")
def trainer() -> Any:
    pytest.importorskip("deepspeed")
    pytest.importorskip("accelerate")
    pytest.importorskip("transformers")
    from transformers.integrations import deepspeed

    return deepspeed


def hand_on(trainer: Any, values: Mapping[str, Any], arguments: TrainingArguments, world_size: int) -> dict[str, Any]:
    """What DeepSpeed gets. Raises ValueError as Trainer does; the model's hidden size is 64."""
    from accelerate.utils import DeepSpeedPlugin
    from transformers import TrainingArguments as RealArguments

    real = SimpleNamespace(
        **{name: arguments[name] for name in ARGUMENTS}, world_size=world_size, save_on_each_node=False
    )
    real.get_warmup_steps = lambda steps: RealArguments.get_warmup_steps(real, steps)
    config = trainer.HfTrainerDeepSpeedConfig(copy.deepcopy(dict(values)))
    config.trainer_config_process(real)
    DeepSpeedPlugin(hf_ds_config=config)
    model = SimpleNamespace(config=SimpleNamespace(hidden_size=HIDDEN_SIZE))
    config.trainer_config_finalize(real, model, arguments["max_steps"] if arguments["max_steps"] > 0 else 12345)
    config.config.pop("steps_per_print")
    handed: dict[str, Any] = config.config
    return handed


def refused_keys(trainer: Any, values: Mapping[str, Any], arguments: TrainingArguments, world_size: int) -> list[str]:
    """The keys that Trainer says to differ from its arguments."""
    try:
        hand_on(trainer, values, arguments, world_size)
    except ValueError as error:
        if not str(error).startswith("Please correct the following DeepSpeed config values"):
            raise
        return re.findall(r"^- ds (\S+?)=", str(error), re.MULTILINE)
    return []


# ------------------------------------------------------------------------------------------------- the rule's examples


def test_trainer_refuses_the_bad_examples_of_its_rule_and_no_good_one(trainer: Any) -> None:
    rule = RULES.by_code["DSA810"]
    for example in (*rule.bad, *rule.good):
        arguments = example.launch.hf_arguments
        assert arguments is not None
        values = read_text(example.config).value
        refused = refused_keys(trainer, values, arguments, example.launch.world_size or 1)
        assert refused == [report.at for report in example.reports]


# ------------------------------------------------------------------------------------------------- what goes unreported


def _handed_on(trainer: Any, example: Example) -> dict[str, Any]:
    arguments = example.launch.hf_arguments or TrainingArguments(given={})
    return hand_on(trainer, read_text(example.config).value, arguments, example.launch.world_size or 1)


def test_an_absent_clipping_is_not_filled_in(trainer: Any) -> None:
    rule = RULES.by_code["DSA811"]
    assert all("gradient_clipping" not in _handed_on(trainer, example) for example in rule.bad)
    assert [_handed_on(trainer, example)["gradient_clipping"] for example in rule.good] == [0.5]


def test_a_switch_for_evaluation_switches_the_training_too(trainer: Any) -> None:
    (bad,) = RULES.by_code["DSA812"].bad
    assert bad.launch.hf_arguments is not None and not bad.launch.hf_arguments["bf16"]
    assert _handed_on(trainer, bad)["bf16"] == {"enabled": True}


def test_an_absent_optimizer_parameter_is_not_filled_in(trainer: Any) -> None:
    rule = RULES.by_code["DSA813"]
    without_lr, without_decay = (_handed_on(trainer, example)["optimizer"]["params"] for example in rule.bad)
    assert without_lr == {"betas": [0.9, 0.999]} and without_decay == {"lr": 5e-5}
    assert _handed_on(trainer, rule.good[0])["optimizer"]["params"] == {"lr": 1e-4, "weight_decay": 0.1}


def test_the_optimizer_and_the_scheduler_of_the_config_take_the_place_of_trainers(trainer: Any) -> None:
    def build(example: Example) -> tuple[str, str]:
        config = SimpleNamespace(config=_handed_on(trainer, example), is_offload=lambda: False)
        # Trainer's own optimizer would be built by a method that this one lacks.
        built = trainer.deepspeed_optim_sched(SimpleNamespace(), config, None, 100, [])
        return type(built[0]).__name__, type(built[1]).__name__

    (bad,) = RULES.by_code["DSA814"].bad
    assert build(bad) == ("DummyOptim", "DummyScheduler")


def test_an_absent_accumulation_becomes_1(trainer: Any) -> None:
    rule = RULES.by_code["DSA815"]
    assert [_handed_on(trainer, example)["gradient_accumulation_steps"] for example in rule.bad] == [1, 1]
    assert [_handed_on(trainer, example)["gradient_accumulation_steps"] for example in rule.good] == [4]


# ------------------------------------------------------------------------------------------------------ random configs


def test_what_trainer_hands_on_and_refuses_is_what_ds_accum_says(trainer: Any) -> None:
    refused = handed_on = 0
    for values, given, world_size in _random_cases(400):
        arguments = TrainingArguments.of(given)
        launch = Launch(world_size=world_size, framework="huggingface", hf_arguments=arguments)
        text = _as_json(values)
        said = [dotted(item.path) for item in lint_text(text, launches=[launch]) if item.code == "DSA810"]
        expected = refused_keys(trainer, values, arguments, world_size)
        assert sorted(said) == sorted(expected), (values, given, world_size)
        if expected:
            refused += 1
            continue
        handed_on += 1
        handed = hand_on(trainer, values, arguments, world_size)
        (embedded,) = find_configs(read_text(text), launch)
        for path in embedded.filled_in:
            _remove(handed, path)
        assert dict(embedded.values) == handed, (values, given, world_size)
    assert refused > 50 and handed_on > 50


def _random_cases(count: int) -> Iterator[tuple[dict[str, Any], dict[str, Any], int]]:
    """Configs in which each key that Trainer knows is absent, "auto", the argument's or another value."""
    chance = random.Random(20)
    for _ in range(count):
        given: dict[str, Any] = {
            "per_device_train_batch_size": chance.choice([1, 2, 8]),
            "gradient_accumulation_steps": chance.choice([1, 4]),
            "max_grad_norm": chance.choice([0.0, 0.5, 1.0]),
            "learning_rate": chance.choice([5e-5, 1e-3]),
            "weight_decay": chance.choice([0, 0.1]),
            "adam_beta2": chance.choice([0.95, 0.999]),
            "bf16": chance.choice([True, False]),
            "bf16_full_eval": chance.choice([True, False, False]),
            "warmup_steps": chance.choice([0, 0.1, 10]),
            "max_steps": chance.choice([100, 1000]),
        }
        given = {name: value for name, value in given.items() if chance.random() < 0.8 or name == "max_steps"}
        world_size = chance.choice([1, 2, 4])
        arguments = TrainingArguments.of(given)
        per_rank = arguments["per_device_train_batch_size"] * arguments["gradient_accumulation_steps"]

        def pick(right: Any, wrong: Any) -> Any:
            return chance.choices(["auto", right, wrong, None], [8, 4, 0.4, 1])[0]

        values: dict[str, Any] = {
            "train_micro_batch_size_per_gpu": pick(arguments["per_device_train_batch_size"], 3),
            "gradient_accumulation_steps": pick(arguments["gradient_accumulation_steps"], "4"),
            "train_batch_size": pick(world_size * per_rank, 7),
            "gradient_clipping": pick(arguments["max_grad_norm"], 3.0),
            "optimizer": {
                "type": "AdamW",
                "params": {
                    "lr": pick(arguments["learning_rate"], 0.5),
                    "betas": pick([arguments["adam_beta1"], arguments["adam_beta2"]], [0.5, 0.5]),
                    "eps": pick(1e-8, 1e-6),
                    "weight_decay": pick(arguments["weight_decay"], 0.5),
                },
            },
            "scheduler": {
                "type": "WarmupDecayLR",
                "params": {
                    "warmup_min_lr": pick(0, 1e-6),
                    "warmup_max_lr": pick(arguments["learning_rate"], 0.5),
                    "warmup_num_steps": "auto",
                    "total_num_steps": pick(arguments["max_steps"], 7),
                },
            },
            "bf16": {"enabled": pick(arguments["bf16"] or arguments["bf16_full_eval"], "yes")},
            "zero_optimization": {"stage": chance.choice([1, 3]), "reduce_bucket_size": pick(5, 6)},
        }
        yield _without_nulls(values), given, world_size


def _without_nulls(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_nulls(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if value is not None
    }


def _as_json(values: Mapping[str, Any]) -> str:
    return json.dumps(values, indent=2)


def _remove(values: dict[str, Any], path: tuple[Any, ...]) -> None:
    for key in path[:-1]:
        values = values[key]
    del values[path[-1]]
