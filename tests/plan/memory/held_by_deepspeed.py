"""What a real DeepSpeed engine holds: run by each rank, which trains a small Llama and weighs all tensors there are.

Two moments: between two micro-batches of a window, and when the optimizer is about to update, its gradients in place.
"""

from __future__ import annotations

import gc
import time
import warnings
from pathlib import Path
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

WINDOWS = 3


class Mlp(nn.Module):
    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden, inner, bias=False)
        self.up = nn.Linear(hidden, inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(states)) * self.up(states))


def experts_of(sizes: dict[str, int]) -> nn.Module:
    """DeepSpeed's own mixture of experts, spread over all ranks."""
    from deepspeed.moe.layer import MoE

    return MoE(
        hidden_size=sizes["hidden_size"],
        expert=Mlp(sizes["hidden_size"], sizes["ffn_hidden_size"]),
        num_experts=sizes["num_experts"],
        ep_size=sizes["expert_parallel_size"],
        k=2,
    )


class Layer(nn.Module):
    """One layer of a Llama, its parameters in the order in which `ds_accum.plan.tensors` lists them."""

    def __init__(self, sizes: dict[str, int]) -> None:
        super().__init__()
        hidden, head = sizes["hidden_size"], sizes["head_size"]
        heads, pairs = sizes["num_attention_heads"], sizes["num_key_value_heads"]
        self.heads, self.pairs, self.head = heads, pairs, head
        self.before_attention = nn.RMSNorm(hidden)
        self.query = nn.Linear(hidden, heads * head, bias=False)
        self.key = nn.Linear(hidden, pairs * head, bias=False)
        self.value = nn.Linear(hidden, pairs * head, bias=False)
        self.output = nn.Linear(heads * head, hidden, bias=False)
        self.before_mlp = nn.RMSNorm(hidden)
        self.mlp = experts_of(sizes) if "num_experts" in sizes else Mlp(hidden, sizes["ffn_hidden_size"])

    def forward(self, states: Tensor) -> Tensor:
        batch, length, _ = states.shape
        normed = self.before_attention(states)
        query = self.query(normed).view(batch, length, self.heads, self.head).transpose(1, 2)
        key = self.key(normed).view(batch, length, self.pairs, self.head).transpose(1, 2)
        value = self.value(normed).view(batch, length, self.pairs, self.head).transpose(1, 2)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        states = states + self.output(attended.transpose(1, 2).reshape(batch, length, -1))
        made = self.mlp(self.before_mlp(states))
        return states + (made[0] if isinstance(made, tuple) else made)


class Llama(nn.Module):
    def __init__(self, sizes: dict[str, int]) -> None:
        super().__init__()
        hidden = sizes["hidden_size"]
        self.words = nn.Embedding(sizes["vocabulary_size"], hidden)
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes["num_layers"]))
        self.norm = nn.RMSNorm(hidden)
        self.head = nn.Linear(hidden, sizes["vocabulary_size"], bias=False)

    def forward(self, words: Tensor) -> Tensor:
        states = self.words(words)
        for layer in self.layers:
            states = layer(states)
        logits = self.head(self.norm(states))
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), words[:, 1:].flatten())


def storages() -> dict[int, int]:
    """Bytes of every storage behind a tensor of this process, by its address."""
    gc.collect()
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some modules answer a question about their class with a warning
        tensors = [item for item in gc.get_objects() if isinstance(item, Tensor)]
        for tensor in tensors:
            for held in (tensor, tensor.grad if tensor.is_leaf else None):
                if held is not None and held.device.type == "cpu":
                    storage = held.untyped_storage()
                    found[storage.data_ptr()] = storage.nbytes()
    return found


def settled_weight(before: set[int]) -> int:
    """Bytes that are held for good, but for the storages of `before`.

    gloo's threads let go of a bucket some milliseconds after the wait for it has ended, so the least of a few
    weighings counts.
    """
    weights = []
    for _ in range(4):
        weights.append(sum(size for address, size in storages().items() if address not in before))
        time.sleep(0.05)
    return min(weights)


def weigh(arguments: dict[str, Any], rank: int, folder: Path) -> dict[str, Any]:
    """Bytes held between micro-batches (None where a window has one) and at the update, over what there was before.

    The first window makes the optimizer's state; of the others the least counts, which has nothing that passes.
    """
    if "num_experts" in arguments["sizes"]:
        deepspeed.init_distributed()
    before = set(storages())

    torch.manual_seed(0)
    model = Llama(arguments["sizes"])
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=list(model.parameters()), config=arguments["config"]
    )
    at_update: list[list[int]] = []
    step = engine.basic_optimizer.step

    def weigh_and_step(*given: Any, **named: Any) -> Any:
        dist.barrier()  # what is still being sent has a copy
        at_update[-1].append(settled_weight(before))
        return step(*given, **named)

    engine.basic_optimizer.step = weigh_and_step
    between: list[int] = []
    words = torch.arange(8)[None] % arguments["sizes"]["vocabulary_size"]
    before.add(words.untyped_storage().data_ptr())
    accumulation = engine.gradient_accumulation_steps()
    for _ in range(WINDOWS):
        at_update.append([])
        for micro_batch in range(accumulation):
            loss = engine(words)
            engine.backward(loss)
            del loss
            if micro_batch == 0 and accumulation > 1:
                between.append(settled_weight(before))
            engine.step()
    return {
        "between": min(between[1:], default=None),
        # Groups of parameters are updated one after the other.
        "update": min(max(of_groups) for of_groups in at_update[1:]),
        "wrapper": type(engine.optimizer).__name__,
    }


class Words(nn.Embedding):
    """The first layer of a pipeline."""


class Head(nn.Module):
    """The last layer of a pipeline."""

    def __init__(self, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(hidden)
        self.output = nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        return self.output(self.norm(states))


def weigh_stage(arguments: dict[str, Any], rank: int, folder: Path) -> dict[str, Any]:
    """Bytes that one stage of DeepSpeed's pipeline holds at the update."""
    from deepspeed.pipe import LayerSpec, PipelineModule

    deepspeed.init_distributed()
    before = set(storages())
    sizes = arguments["sizes"]
    hidden, vocabulary = sizes["hidden_size"], sizes["vocabulary_size"]

    def loss(logits: Tensor, words: Tensor) -> Tensor:
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), words[:, 1:].flatten())

    layers = [LayerSpec(Words, vocabulary, hidden)]
    layers += [LayerSpec(Layer, sizes) for _ in range(sizes["num_layers"])]
    layers += [LayerSpec(Head, hidden, vocabulary)]
    model = PipelineModule(layers, num_stages=arguments["stages"], loss_fn=loss, partition_method="uniform")
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=list(model.parameters()), config=arguments["config"]
    )
    at_update: list[int] = []
    step = engine.basic_optimizer.step

    def weigh_and_step(*given: Any, **named: Any) -> Any:
        at_update.append(settled_weight(before))
        return step(*given, **named)

    engine.basic_optimizer.step = weigh_and_step
    words = torch.arange(8)[None] % vocabulary
    for _ in range(WINDOWS):
        engine.train_batch(iter([(words, words)] * engine.gradient_accumulation_steps()))
    return {
        "update": min(at_update[1:]),
        "stage": engine.stage_id,
        "wrapper": type(engine.optimizer).__name__,
    }
