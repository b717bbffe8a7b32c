"""Configs that nobody wrote, with the launch each is for: from the table of every key, by a seed, as text with noise.

    generate(seed)             always the same case for a seed; with `launch=`, for that launch
    generate_with(random)      the same from any source of choices, such as hypothesis' own

Most cases start from a config that loads and get one or two faults, so that one mistake does not hide another; some get
none, some many. What can go wrong is in `_FAULTS`: each takes the config and breaks one thing.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

from noise import damaged, write

from ds_accum.config.launch import Launch
from ds_accum.config.resolve import ACCUMULATION, GLOBAL_BATCH, MICRO_BATCH
from ds_accum.config.schema import Block, Key, history, newest_version, schema_for

Values = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One generated config file and the launch that it is judged for."""

    text: str
    launch: Launch


def generate(seed: int, *, launch: Launch | None = None) -> Case:
    return generate_with(Random(seed), launch=launch)


def generate_with(random: Random, *, launch: Launch | None = None) -> Case:
    launch = launch or _launch(random)
    if random.random() < 0.02:
        return Case(text=damaged(random, random.choice(_real_texts())), launch=launch)
    values = _sound_config(random, launch)
    for _ in range(random.choice(_NUMBER_OF_FAULTS)):
        random.choice(_FAULTS)(random, values)
    return Case(text=write(random, values), launch=launch)


@lru_cache(maxsize=1)
def _real_texts() -> tuple[str, ...]:
    """The repository's own configs."""
    return tuple(path.read_text("utf-8") for path in sorted(_CONFIGS.glob("*.json")))


_CONFIGS = Path(__file__).resolve().parents[2] / "configs"
_NUMBER_OF_FAULTS = (0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4, 8)


# --- the launch -------------------------------------------------------------------------------------------------------


def _launch(random: Random) -> Launch:
    world_size = random.choice((1, 1, 2, 2, 3, 4, 6, 8, 12, 16, 64, random.randint(1, 64)))
    degrees = {"tensor": 1, "pipeline": 1, "context": 1, "sequence": 1}
    if random.random() < 0.3:
        rest = world_size
        for name in random.sample(sorted(degrees), random.randint(1, 2)):
            degrees[name] = random.choice([size for size in range(1, rest + 1) if rest % size == 0])
            rest //= degrees[name]
    return Launch(
        world_size=world_size,
        framework="raw",
        **{f"{name}_parallel_size": degree for name, degree in degrees.items()},  # type: ignore[arg-type]
    )


# --- a config that loads ----------------------------------------------------------------------------------------------


def _sound_config(random: Random, launch: Launch) -> Values:
    values = _batch(random, launch)
    for _ in range(random.choice((0, 1, 2, 3, 6))):
        _add_sound_key(random, values)
    if random.random() < 0.6:
        _set(values, ("zero_optimization", "stage"), random.randint(0, 3))
    if random.random() < 0.5:
        values["optimizer"] = _optimizer(random)
    if random.random() < 0.3:
        values["scheduler"] = _scheduler(random)
    if random.random() < 0.4:
        _set(values, (random.choice(("fp16", "bf16")), "enabled"), True)
    entries = list(values.items())
    random.shuffle(entries)
    return dict(entries)


def _batch(random: Random, launch: Launch) -> Values:
    layout = launch.layout()
    data_parallel = 1 if layout is None else layout.data_parallel_size
    micro, steps = random.choice((1, 2, 3, 4, 8, 16)), random.choice((1, 1, 2, 3, 4, 8))
    batch = {GLOBAL_BATCH: micro * steps * data_parallel, MICRO_BATCH: micro, ACCUMULATION: steps}
    kept = random.choice(
        (
            (GLOBAL_BATCH, MICRO_BATCH, ACCUMULATION),
            (GLOBAL_BATCH, MICRO_BATCH),
            (GLOBAL_BATCH, ACCUMULATION),
            (MICRO_BATCH, ACCUMULATION),
            (GLOBAL_BATCH,),
            (MICRO_BATCH,),
        )
    )
    return {key: batch[key] for key in kept}


def _add_sound_key(random: Random, values: Values) -> None:
    block, key = random.choice(_known_keys())
    if block.name or key.name not in (GLOBAL_BATCH, MICRO_BATCH, ACCUMULATION, "sequence_parallel_size"):
        _set(values, (*block.path, key.name), _sound_value(random, key))


_OPTIMIZERS = "Adam AdamW Adagrad Lamb Lion Muon MuAdam MuAdamW MuSGD SGD adam adamw ADAMW RMSprop NAdam Adafactor Adadelta".split()
_OTHER_OPTIMIZERS = (
    "OneBitAdam OneBitLamb ZeroOneAdam FusedAdam DeepSpeedCPUAdam adamw_torch sgd Optimizer lr_scheduler "
    "AdamWW auto LBFGS SparseAdam __name__ Adam. _functional".split()
)
_OPTIMIZER_PARAMS: dict[str, tuple[Any, ...]] = {
    "lr": (1e-3, 1e-5, 0, 0.1, "auto", "1e-3", None, -1, [1e-3]),
    "betas": ([0.9, 0.999], [0.8, 0.95], [0.9], "auto", 0.9, [0, 0], [1, 1], None, ["0.9", "0.95"]),
    "eps": (1e-8, 1e-6, "auto", "1e-8", 0, -1, None),
    "weight_decay": (0, 0.01, 3e-7, "auto", -1, "0.1", None),
    "torch_adam": (True, False, "false", 0, None),
    "adam_w_mode": (True, False, "false", None),
    "momentum": (0.9, 0, -1, "auto", None),
    "max_grad_norm": (1.0, 0, 0.0, -1, "auto", None, "1.0", True, [], {}),
    "bias_correction": (True, False, None, "x"),
    "amsgrad": (False, True),
    "fused": (True, False),
    "foreach": (True, False),
    "learning_rate": (1e-3,),
    "freeze_step": (100,),
    "params": ([], None),
    "max_coeff": (10.0, "x"),
    "ns_method": ("gram", "standard", "x", None, 1),
    "muon_lr": (0.02, "x", None),
    "adam_lr": (1e-3,),
}
_SCHEDULERS = "WarmupLR WarmupDecayLR WarmupCosineLR LRRangeTest OneCycle StepLR CosineAnnealingLR ConstantLR".split()
_OTHER_SCHEDULERS = "warmuplr LinearLR WarmupCosine cosine auto LambdaLR Optimizer __doc__ get_torch_optimizer".split()
_SCHEDULER_PARAMS: dict[str, tuple[Any, ...]] = {
    "warmup_min_lr": (0, 1e-6, "auto", -1, None, [0]),
    "warmup_max_lr": (1e-3, 1e-5, "auto", None, "1e-3"),
    "warmup_num_steps": (100, 1, 0, -1, 10.5, "100", "auto", None, True, 10**30),
    "warmup_type": ("log", "linear", "cosine", "auto", None, 1),
    "total_num_steps": (1000, 10, 0, -1, 1.5, "auto", "1000", None),
    "last_batch_iteration": (-1, 0, 5, "0", None),
    "warmup_ratio": (0.1,),
    "cos_min_ratio": (0.01, "x"),
    "lr_range_test_min_lr": (1e-3, "x", [1e-3, 1e-3]),
    "lr_range_test_step_size": (2000, 0),
    "cycle_min_lr": (1e-4,),
    "cycle_max_lr": (1e-3,),
    "cycle_first_step_size": (2000, 0, "x"),
    "step_size": (10, 0, "x"),
    "T_max": (10, 0),
}


def _optimizer(random: Random) -> Values:
    params = {name: choices[0] for name, choices in _OPTIMIZER_PARAMS.items() if name in ("lr", "weight_decay")}
    return {"type": random.choice(_OPTIMIZERS), "params": params} if random.random() < 0.8 else {"type": "AdamW"}


def _scheduler(random: Random) -> Values:
    return {"type": random.choice(_SCHEDULERS[:3]), "params": {"warmup_num_steps": 100, "total_num_steps": 1000}}


def _sound_value(random: Random, key: Key) -> Any:
    """A value of the key's type, within its bounds."""
    if key.null and random.random() < 0.1:
        return None
    if key.block is not None:
        block = schema_for(newest_version()).block(key.block)
        chosen = random.sample(sorted(block.keys), min(len(block.keys), random.randint(0, 3)))
        return {name: _sound_value(random, block.keys[name]) for name in chosen}
    if key.choices:
        choice = random.choice(key.choices)
        return [choice] if key.type == "list[literal]" else choice
    if key.type in ("int", "float"):
        low = key.ge if key.ge is not None else 0 if key.gt is not None else -2
        numbers: list[float] = [low + 1, 1, 2, 16, 500_000_000, int(5e8)]
        if key.type == "float":
            numbers = [0.5, 0.1, 0.9] if key.le is not None or key.lt is not None else [0, 0.5, 1.0, 1, 100.0]
        return random.choice(numbers)
    return random.choice(_OF_TYPE.get(key.type, (None, key.default)))


_OF_TYPE: dict[str, tuple[Any, ...]] = {
    "bool": (True, False),
    "str": ("x", "info", "IGNORE", "fail", ""),
    "list": ([], ["all_reduce"]),
    "dict": ({}, {"a": 1}),
    "dict[str]": ({}, {"a": 1}),
    "list[str]": ([], ["x"]),
    "tuple": ([], [["a"]]),
    "path": ("/local_nvme",),
    "str|int": (4, "auto", "4"),
    "any": (None, True, 1, "auto", "fp32", "bf16"),
}


# --- what goes wrong --------------------------------------------------------------------------------------------------

_ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 2, 3, 4, -1, 0.5, 1.5, 2.5, -0.5, 8.5, 1e-10, 1e30, -1e30, 1e308),
    *(2**31, 2**63 - 1, 2**63, 2**64, -(2**63), -(2**63) - 1, 10**30, 10**308, 10**309, 10**400),
    *("", " ", "auto", "Auto", "none", "null", "true", "false", "True", "yes", "on", "off", "x", "cpu", "nvme", "fp16"),
    *("bf16", "fp32", "float16", "bfloat16", "torch.float16", "half", "int8", "FP16", "mean", "sum", "SUM", "avg"),
    *("0", "1", "2", "3", "4", "-1", "2.0", "2.5", " 2", "2 ", "0x10", "1e3", "5e8", "1_000", "٣", "inf", "nan", "NaN"),
    *(
        [],
        [1],
        ["x"],
        [[]],
        [None],
        [True],
        ["fp16", 1],
        {},
        {"enabled": True},
        {"enabled": "auto"},
        {"x": {}},
        {"": 0},
    ),
)


def _odd_value(random: Random) -> Any:
    # A copy: what comes later may write into it.
    return copy.deepcopy(random.choice(_ODD_VALUES))


def _odd_value_somewhere(random: Random, values: Values) -> None:
    block, key = random.choice(_known_keys())
    _set(values, (*block.path, key.name), _odd_value(random))


def _odd_value_at_the_top(random: Random, values: Values) -> None:
    values[random.choice(sorted(schema_for(newest_version()).block("").keys))] = _odd_value(random)


def _odd_value_of_a_written_key(random: Random, values: Values) -> None:
    holder, key = _a_written_key(random, values)
    holder[key] = _odd_value(random)


def _the_same_value_of_another_type(random: Random, values: Values) -> None:
    holder, key = _a_written_key(random, values)
    value = holder[key]
    if isinstance(value, bool):
        holder[key] = random.choice((str(value), str(value).lower(), int(value), float(value)))
    elif isinstance(value, int | float) and abs(value) < 1e300:
        holder[key] = random.choice((str(value), f" {value} ", float(value), value + 0.5))
    else:
        holder[key] = random.choice((json.dumps(value), [value], {"value": value}))


def _value_at_a_bound(random: Random, values: Values) -> None:
    block, key = random.choice(
        [(block, key) for block, key in _known_keys() if key.type in ("int", "float", "int_enum")]
    )
    bounds = [
        bound for bound in (key.ge, key.gt, key.le, key.lt, *key.choices[:1], *key.choices[-1:]) if bound is not None
    ]
    bound = random.choice(bounds or [0])
    _set(values, (*block.path, key.name), bound + random.choice((-1, -0.5, -1e-9, 0, 1e-9, 0.5, 1)))


def _misspelt_key(random: Random, values: Values) -> None:
    holder, key = _a_written_key(random, values)
    if not isinstance(key, str) or not key:
        return
    at = random.randrange(len(key))
    misspelt = random.choice(
        (
            key[:at] + key[at + 1 :],
            key[:at] + random.choice("_aexs") + key[at:],
            key.replace("_", "-"),
            key.upper(),
            key.title(),
            key + "s",
            f"{key} ",
            f"_{key}",
            key.replace("optimization", "optimisation"),
        )
    )
    holder[misspelt] = holder.pop(key)


def _key_in_another_block(random: Random, values: Values) -> None:
    _, key = random.choice(_known_keys())
    other, _ = random.choice(_known_keys())
    _set(values, (*other.path, key.name), _sound_value(random, key))


def _removed_key(random: Random, values: Values) -> None:
    removed = [change for change in history() if change.removed and change.key]
    change = random.choice(removed)
    _set(values, (*change.block.split("."), change.key) if change.block else (change.key,), _odd_value(random))


def _unknown_key(random: Random, values: Values) -> None:
    block, _ = random.choice(_known_keys())
    name = random.choice(("comment", "_comment", "foo", "enabled", "type", "params", "stage", "strict", "ds_accum", ""))
    _set(values, (*block.path, name), _odd_value(random))


def _name_that_only_the_model_knows(random: Random, values: Values) -> None:
    """DeepSpeed's models take a key under their own field name too, but not under both."""
    block, key = random.choice([(block, key) for block, key in _known_keys() if key.name_in_model is not None])
    _set(values, (*block.path, key.name_in_model or ""), _sound_value(random, key))
    if random.random() < 0.5:
        _set(values, (*block.path, key.name), _sound_value(random, key))


def _replaced_key_and_its_replacement(random: Random, values: Values) -> None:
    block, key = random.choice([(block, key) for block, key in _known_keys() if key.replaced_by is not None])
    _set(values, (*block.path, key.name), random.choice((True, False, None, "auto")))
    for name in (key.replaced_by or "").split(" or "):
        if random.random() < 0.6:
            known = next((item for item in block.keys.values() if name in (item.name, item.name_in_model)), None)
            _set(values, (*block.path, name), None if known is None else _sound_value(random, known))


def _block_of_another_type(random: Random, values: Values) -> None:
    block = random.choice([block for block in schema_for(newest_version()).blocks.values() if block.name])
    _set(values, block.path, _odd_value(random))


def _auto(random: Random, values: Values) -> None:
    holder, key = _a_written_key(random, values)
    holder[key] = "auto"


def _batch_that_nearly_fits(random: Random, values: Values) -> None:
    key = random.choice((GLOBAL_BATCH, MICRO_BATCH, ACCUMULATION))
    held = values.get(key)
    number = held if type(held) is int and abs(held) < 2**53 else 1
    values[key] = random.choice((number + 1, number - 1, number * 2, number // 2, number + 0.5, number * 3, -number, 7))


def _batch_of_odd_values(random: Random, values: Values) -> None:
    for key in random.sample((GLOBAL_BATCH, MICRO_BATCH, ACCUMULATION), random.randint(1, 3)):
        values[key] = _odd_value(random)


def _no_batch(random: Random, values: Values) -> None:
    for key in random.sample((GLOBAL_BATCH, MICRO_BATCH), 2):
        values.pop(key, None)


def _sequence_parallelism(random: Random, values: Values) -> None:
    values["sequence_parallel_size"] = random.choice((1, 2, 3, 4, 8, 16, 0, -1, 0.5, _odd_value(random)))
    if random.random() < 0.4:
        values["data_parallel_size"] = random.choice((1, 2, 4, 8, 0, -1, _odd_value(random)))


def _other_optimizer(random: Random, values: Values) -> None:
    chosen: Any = random.choice((*_OPTIMIZERS, *_OTHER_OPTIMIZERS))
    _set(values, ("optimizer", "type"), chosen if random.random() < 0.8 else _odd_value(random))
    for name in random.sample(sorted(_OPTIMIZER_PARAMS), random.randint(0, 3)):
        _set(values, ("optimizer", "params", name), random.choice(_OPTIMIZER_PARAMS[name]))


def _other_scheduler(random: Random, values: Values) -> None:
    chosen: Any = random.choice((*_SCHEDULERS, *_OTHER_SCHEDULERS))
    _set(values, ("scheduler", "type"), chosen if random.random() < 0.8 else _odd_value(random))
    for name in random.sample(sorted(_SCHEDULER_PARAMS), random.randint(0, 3)):
        _set(values, ("scheduler", "params", name), random.choice(_SCHEDULER_PARAMS[name]))


def _both_precisions(random: Random, values: Values) -> None:
    for name in random.sample(("fp16", "bf16", "bfloat16"), 2):
        _set(values, (name, "enabled"), random.choice((True, True, "true", 1, "auto", False)))


def _master_weights(random: Random, values: Values) -> None:
    name = random.choice(("fp16.fp16", "bf16.bf16", "bfloat16.bf16"))
    block, prefix = name.split(".")
    _set(values, (block, f"{prefix}_master_weights_and_grads"), random.choice((True, False, "true")))
    if prefix == "bf16":
        _set(values, (block, "bf16_optimizer_states"), random.choice((True, False)))
    if random.random() < 0.5:
        _set(values, ("zero_optimization", "stage"), random.randint(0, 3))


def _sum_of_gradients(random: Random, values: Values) -> None:
    values["gradient_allreduce_op"] = random.choice(("sum", "SUM", "mean", "avg", None))
    _set(values, random.choice((("compile", "deepcompile"), ("zero_optimization", "overlap_comm"))), True)
    if random.random() < 0.3:
        _set(values, ("zero_optimization", "zenflow"), random.choice(({}, {"topk_ratio": 0.1}, None)))


def _sampling_of_data(random: Random, values: Values) -> None:
    block = random.choice(("curriculum_learning", "dynamic_batching"))
    at = ("data_efficiency", "data_sampling", block)
    for path in (at[:1], at[:2], at):
        if random.random() < 0.7:
            _set(values, (*path, "enabled"), random.choice((True, False, "false", "auto", 0, None)))
    if random.random() < 0.4:
        _set(values, (*at, "curriculum_metrics"), random.choice(({}, {"x": {}}, {"x": {"a": 1}}, None, [], "auto")))
    if random.random() < 0.3:
        _set(values, (*at, "max_tokens"), random.choice((1024, None, "x")))
    if random.random() < 0.3:
        _set(values, ("data_efficiency", "data_routing", "random_ltd"), random.choice(_RANDOM_LTD))


_RANDOM_LTD: tuple[Any, ...] = (
    {"enabled": True},
    {"enabled": False},
    {"enabled": True, "total_layer_num": 4, "random_ltd_layer_num": 2},
    {"enabled": True, "random_ltd_schedule": {"min_value": 1}, "layer_token_lr_schedule": None},
    {},
    None,
    True,
)

_FAULTS: tuple[Callable[[Random, Values], None], ...] = (
    _odd_value_somewhere,
    _odd_value_somewhere,
    _odd_value_somewhere,
    _odd_value_at_the_top,
    _odd_value_of_a_written_key,
    _the_same_value_of_another_type,
    _value_at_a_bound,
    _misspelt_key,
    _key_in_another_block,
    _removed_key,
    _unknown_key,
    _name_that_only_the_model_knows,
    _replaced_key_and_its_replacement,
    _block_of_another_type,
    _auto,
    _batch_that_nearly_fits,
    _batch_of_odd_values,
    _no_batch,
    _sequence_parallelism,
    _other_optimizer,
    _other_scheduler,
    _both_precisions,
    _master_weights,
    _sum_of_gradients,
    _sampling_of_data,
)


# --- paths ------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _known_keys() -> tuple[tuple[Block, Key], ...]:
    """Every key of the newest release with its block."""
    return tuple((block, key) for block in schema_for(newest_version()).blocks.values() for key in block.keys.values())


def _set(values: Values, path: tuple[str, ...], value: Any) -> None:
    """Sets the value at a path; whatever stands in the way of it becomes an object."""
    holder = values
    for part in path[:-1]:
        if not isinstance(holder.get(part), dict):
            holder[part] = {}
        holder = holder[part]
    holder[path[-1]] = copy.deepcopy(value)


def _a_written_key(random: Random, values: Values) -> tuple[Any, Any]:
    if not values:
        values["steps_per_print"] = 10
    return random.choice(list(_written(values)))


def _written(values: Any) -> Iterator[tuple[Any, Any]]:
    """Every key of every object of the config, as the object and the key."""
    stack = [values]
    while stack:
        item = stack.pop()
        for key, value in list(item.items()) if isinstance(item, dict) else []:
            yield item, key
            if isinstance(value, dict):
                stack.append(value)
