"""What the ranks of `bench_engine.py` do: stock DeepSpeed, ds-accum and two other ways of weighting by turns."""

from __future__ import annotations

import math
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import isfunction, isgeneratorfunction, unwrap
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

WIDTH, BLOCKS, VOCABULARY = 256, 4, 2000
LEAST_TOKENS = 8
"""Of a micro-batch: few enough for a CPU without bf16 instructions, where sixteen micro-batches of more take seconds."""

OWN_WINDOWS = 9
"""In which the time of ds-accum's own code is taken, after all else is measured."""

COUNTED = 0.6
"""Share of a sequence that counts."""

COLLECTIVES = {
    "all_reduce": 0,
    "broadcast": 0,
    "all_gather": 1,
    "all_gather_into_tensor": 1,
    "reduce_scatter_tensor": 1,
    "all_to_all_single": 1,
}
"""Collective -> the place of its input among the positional arguments."""


class Model(nn.Module):
    """About 3.1 million parameters; the loss is the mean over the labels that are not -100."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
            for _ in range(BLOCKS)
        )
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return nn.functional.cross_entropy(self.head(hidden).float().flatten(0, 1), labels.flatten())


def config(case: dict[str, Any]) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": case["accumulation"],
        "gradient_clipping": 1.0,
        "steps_per_print": 10**9,
        "bf16": {"enabled": case["dtype"] == "bf16"},
        "zero_optimization": {
            "stage": case["stage"],
            "reduce_bucket_size": 10**7,
            "allgather_bucket_size": 10**7,
            "stage3_param_persistence_threshold": 0,
        },
        "zero_allow_untested_optimizer": True,
        "ds_accum": {"counting": {"shift": False}},
    }


def build(case: dict[str, Any], initialize: Callable[..., Any]) -> Any:
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    return initialize(model=model, optimizer=optimizer, config=config(case))[0]


def gradients(engine: Any) -> Iterator[torch.Tensor]:
    """The complete gradients, wherever the stage keeps them before its step."""
    averaged = getattr(engine.optimizer, "averaged_gradients", None)
    if averaged is None:
        yield from (p.grad for p in engine.module.parameters() if p.grad is not None)
        return
    for tensors in averaged.values():
        yield from (tensors if isinstance(tensors, list | tuple) else [tensors]) if tensors is not None else ()


class SharedEngine:
    """One engine that is DeepSpeed's and ds-accum's by turns: with the same tensors, at the same places in memory.

    Two engines of one kind differ in speed by up to 2 % on a CPU, for as long as they live: more than is looked for.
    """

    def __init__(self, case: dict[str, Any]) -> None:
        import deepspeed

        from ds_accum.config.block import Counting, DSAccumBlock
        from ds_accum.engine.attaching import attach

        self.engine = engine = build(case, deepspeed.initialize)
        holders = {id(holder): vars(holder) for holder in (engine, engine.optimizer, engine.basic_optimizer)}
        # The hooks of torch's optimizer are in a dictionary of their own.
        places = [*holders.values(), engine.basic_optimizer._optimizer_step_pre_hooks]
        stock_class, before = type(engine), [dict(place) for place in places]
        attach(engine, DSAccumBlock(counting=Counting(shift=False)), None)
        self._classes = {False: stock_class, True: type(engine)}
        self._attached = [
            (place, {name: value for name, value in place.items() if old.get(name) is not value}, old)
            for place, old in zip(places, before, strict=True)
        ]
        self._is_ours = True

    def become(self, *, ours: bool) -> None:
        """Puts back what attaching ds-accum changed, or does it once more; between two windows."""
        if ours == self._is_ours:
            return
        self._is_ours, self.engine.__class__ = ours, self._classes[ours]
        for place, attached, before in self._attached:
            for name, value in attached.items():
                if ours:
                    place[name] = value
                elif name in before:
                    place[name] = before[name]
                else:
                    del place[name]


class Ways:
    """The ways to train one window, each on the same engine."""

    def __init__(self, case: dict[str, Any], tokens: torch.Tensor) -> None:
        self.accumulation = case["accumulation"]
        self.set_tokens(tokens)
        self.shared = SharedEngine(case)

    def set_tokens(self, tokens: torch.Tensor) -> None:
        """The micro-batch, [1, T], that every way is given again and again."""
        self.tokens = tokens
        self.labels = tokens.masked_fill(torch.arange(tokens.shape[1]) >= int(COUNTED * tokens.shape[1]), -100)

    def window(self, name: str) -> None:
        """One optimizer step; `prepare(name)` comes before it."""
        engine = self.shared.engine
        for index in range(self.accumulation):
            loss = engine(tokens=self.tokens, labels=self.labels)
            if name == "a count gathered per micro-batch":
                # As Hugging Face's Trainer does before each loss.
                count = (self.labels != -100).sum().reshape(1)
                counts = [torch.empty_like(count) for _ in range(dist.get_world_size())]
                dist.all_gather(counts, count)
                loss = loss * (count.item() * len(counts) / sum(int(other) for other in counts))
            engine.backward(loss)
            if name == "a pass over gradients" and index == self.accumulation - 1:
                # As Megatron does once the tokens are known.
                total = (self.labels != -100).sum(dtype=torch.float64) * self.accumulation
                dist.all_reduce(total)
                factor = 1.0 / max(float(total), 1.0) * float(total)
                for gradient in gradients(engine):
                    gradient.mul_(factor)
            engine.step()

    def prepare(self, name: str) -> None:
        """Makes the engine the one that this way needs."""
        self.shared.become(ours=name == "ds-accum")


def measure(case: dict[str, Any], rank: int, folder: Path) -> dict[str, Any]:
    """Seconds, main-thread CPU seconds and page faults of each way, pair by pair, and its collectives in one window."""
    names = case["ways"]
    ways = Ways(case, sized_tokens(case, rank))
    for name in names:
        ways.prepare(name)
        ways.window(name)
        ways.window(name)
    samples: dict[str, list[tuple[float, float, int]]] = {name: [] for name in names}
    for repeat in range(case["repeats"]):
        for name in turns(names, repeat):
            ways.prepare(name)
            dist.barrier()
            faults, wall, cpu = _page_faults(), time.perf_counter(), time.thread_time()
            ways.window(name)
            seconds = time.perf_counter() - wall, time.thread_time() - cpu
            samples[name].append((*seconds, _page_faults() - faults))
    counted = {}
    for name in names:
        ways.prepare(name)
        with counting_collectives() as collectives:
            ways.window(name)
        counted[name] = dict(collectives)
    ways.prepare("ds-accum")
    own = []
    for _ in range(OWN_WINDOWS):
        with own_time() as timer:
            ways.window("ds-accum")
        own.append(timer.seconds)
    return {"samples": samples, "collectives": counted, "own": own, "sequence": ways.tokens.shape[1]}


def _page_faults() -> int:
    """Of the main thread: more in one way than in another are memory that it can't use again, and has mapped anew."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


def turns(names: list[str], repeat: int) -> list[str]:
    """The order of a repeat: each of three ways or more is first, second, ... equally often, and none follows itself."""
    start = repeat % len(names)
    return names[start:] + names[:start]


def sized_tokens(case: dict[str, Any], rank: int) -> torch.Tensor:
    """tokens [1, T], with T such that a stock window takes `case["seconds"]` or more; the same T on all ranks."""
    generator = torch.Generator().manual_seed(rank)
    ways = Ways(case, torch.zeros(1, LEAST_TOKENS, dtype=torch.long))
    ways.prepare("stock")
    length = LEAST_TOKENS
    while (seconds := _seconds_of_a_window(ways, length)) < case["seconds"]:
        # A part of the time, the update's above all, does not grow with T: this comes near from below.
        length = math.ceil(length * 1.1 * case["seconds"] / seconds)
    return torch.randint(0, VOCABULARY, (1, length), generator=generator)


def _seconds_of_a_window(ways: Ways, length: int) -> float:
    """Of stock DeepSpeed, with so many tokens a micro-batch, on the slower rank."""
    ways.set_tokens(torch.zeros(1, length, dtype=torch.long))
    ways.window("stock")
    start = time.perf_counter()
    for _ in range(3):
        ways.window("stock")
    longest = torch.tensor([(time.perf_counter() - start) / 3])
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    return float(longest)


@contextmanager
def counting_collectives() -> Iterator[Counter[str]]:
    """Calls and bytes of each collective, as "name" and "name bytes"."""
    from ds_accum.engine.overriding import overriding

    counted: Counter[str] = Counter()
    originals = {name: getattr(dist, name) for name in COLLECTIVES if hasattr(dist, name)}

    def counting(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            place = COLLECTIVES[name]
            given = arguments[place] if len(arguments) > place else next(
                options[key] for key in ("tensor", "input_tensor", "input") if key in options
            )  # fmt: skip
            counted[name] += 1
            counted[f"{name} bytes"] += given.numel() * given.element_size()
            return original(*arguments, **options)

        return call

    with overriding(dist, **{name: counting(name, original) for name, original in originals.items()}):
        yield counted


class OwnTime:
    """CPU time of the main thread in ds-accum's own code: from where it is entered to where it calls DeepSpeed's."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since = 0.0
        self._are_ours: list[bool] = []
        """Of the calls under way, which are ds-accum's."""

    def timing(self, function: Callable[..., Any], *, ours: bool) -> Callable[..., Any]:
        """The function, whose time counts or does not."""

        @wraps(function)
        def timed(*arguments: Any, **options: Any) -> Any:
            self._turn()
            self._are_ours.append(ours)
            try:
                return function(*arguments, **options)
            finally:
                self._turn()
                self._are_ours.pop()

        return timed

    def _turn(self) -> None:
        now = time.thread_time()
        if self._are_ours and self._are_ours[-1]:
            self.seconds += now - self._since
        self._since = now


@contextmanager
def own_time() -> Iterator[OwnTime]:
    """Takes the time of what the engine overrides and of its hooks, without that of what they override.

    No difference of two long times is taken, so a noisy machine matters little; what the code costs by pushing others
    out of the caches is not in it.
    """
    from deepspeed.runtime import utils
    from deepspeed.runtime.engine import DeepSpeedEngine

    from ds_accum.engine import token_weighted
    from ds_accum.engine.overriding import overriding

    timer, register = OwnTime(), token_weighted.on_gradient
    methods = {
        name: method
        for name, method in vars(token_weighted.TokenWeightedEngine).items()
        if isfunction(method) and not isgeneratorfunction(unwrap(method))
    }
    overridden = {name: method for name, method in vars(DeepSpeedEngine).items() if name in methods}
    with (
        overriding(token_weighted, on_gradient=lambda loss, hook: register(loss, timer.timing(hook, ours=True))),
        overriding(utils, clip_grad_norm_=timer.timing(utils.clip_grad_norm_, ours=False)),
        overriding(
            token_weighted.TokenWeightedEngine,
            **{name: timer.timing(method, ours=True) for name, method in methods.items()},
        ),
        overriding(DeepSpeedEngine, **{name: timer.timing(method, ours=False) for name, method in overridden.items()}),
    ):
        yield timer


def peak_memory(case: dict[str, Any], rank: int, folder: Path) -> int:
    """Bytes that the process grew by from before the engine to its highest point, in a process of its own."""
    import deepspeed

    import ds_accum

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    engine = build(case, ds_accum.initialize if case["ours"] else deepspeed.initialize)
    tokens = torch.zeros(1, 32, dtype=torch.long)
    for _ in range(3 * case["accumulation"]):
        engine.backward(engine(tokens=tokens, labels=tokens))
        engine.step()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
