"""What is trained on what: the built-in text, a function of the user's, or a Hugging Face model.

A function of the user's, `--workload train.py:build`, takes nothing and returns four things:

    def build():
        model = MyModel()                                    # fresh parameters, float32, seeded for you
        dataset = [{"x": torch.randn(8), "y": ...}, ...]     # dataset[i]: a mapping of tensors, all of equal shapes
        def loss(model, batch):                              # the MEAN loss over the counted tokens of the batch
            return F.cross_entropy(model(batch["x"]), batch["y"], ignore_index=-100)
        def num_tokens(batch):                               # how many that are
            return int((batch["y"] != -100).sum())
        return model, dataset, loss, num_tokens

A batch is the samples' tensors stacked along a new first dimension. `loss` is given the engine in place of the model,
and has to call it once. A dataset with a length starts again at its end. `build` is called once for every variant,
with the same seed, so it must not depend on what ran before.
"""

from __future__ import annotations

import importlib.util
import inspect
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from ds_accum.compare.spec import Workload
from ds_accum.compare.worker.generated_text import GeneratedText
from ds_accum.compare.worker.transformer import IGNORE_INDEX, CausalTransformer
from ds_accum.errors import UsageError

__all__ = ["Batch", "MicroBatch", "Training", "build", "micro_batches"]

Batch = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A model with fresh parameters, its samples, its mean loss over counted tokens, and how many these are."""

    model: nn.Module
    dataset: Any
    loss: Callable[[Any, Batch], Tensor]
    num_tokens: Callable[[Batch], int]

    def batch(self, samples: range) -> Batch:
        """The samples of these numbers, each tensor stacked along a new first dimension."""
        length = len(self.dataset) if hasattr(self.dataset, "__len__") else None
        picked = [self.dataset[sample % length if length else sample] for sample in samples]
        return {name: torch.stack([sample[name] for sample in picked]) for name in picked[0]}


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """One forward of one rank."""

    inputs: Batch
    num_tokens: int


def micro_batches(
    training: Training, *, step: int, global_batch_size: int, micro_batch_size: int, rank: int, world_size: int
) -> list[MicroBatch]:
    """What a rank trains on in an optimizer step: step s is samples s*B to (s+1)*B-1, however they are cut.

    The micro-batches of all ranks follow each other: the m-th of rank r begins at sample (m * world + r) * micro.
    """
    batches = []
    for start in range(rank * micro_batch_size, global_batch_size, micro_batch_size * world_size):
        first = step * global_batch_size + start
        inputs = training.batch(range(first, first + micro_batch_size))
        batches.append(MicroBatch(inputs=inputs, num_tokens=int(training.num_tokens(inputs))))
    return batches


def build(workload: Workload, dtypes: tuple[torch.dtype, ...] = ()) -> Training:
    """A workload with fresh parameters, the same at every call, that all of `dtypes` can hold as they are.

    Raises UsageError for a workload that can't be built: no such file or function, a function that returns something
    else, transformers not installed.
    """
    torch.manual_seed(workload.seed)
    random.seed(workload.seed)
    training = {"text": _text, "file": _from_file, "huggingface": _hugging_face}[workload.kind](workload)
    with torch.no_grad():
        for parameter in training.model.parameters():
            for dtype in dtypes:
                parameter.copy_(parameter.to(dtype))
    return training


# --- the built-in one -------------------------------------------------------------------------------------------------


def _text(workload: Workload) -> Training:
    if workload.width % workload.heads:
        raise UsageError(
            f"width {workload.width} is not a multiple of {workload.heads} heads",
            remedy="choose a width that the heads divide",
        )
    model = CausalTransformer(
        layers=workload.layers,
        width=workload.width,
        heads=workload.heads,
        vocabulary=workload.vocabulary,
        sequence_length=workload.sequence_length,
    )
    dataset = GeneratedText(
        vocabulary=workload.vocabulary, sequence_length=workload.sequence_length, seed=workload.seed
    )
    return Training(model=model, dataset=dataset, loss=_called_with_batch, num_tokens=_counted_labels)


def _called_with_batch(model: Any, batch: Batch) -> Tensor:
    loss: Tensor = model(**batch)
    return loss


def _counted_labels(batch: Batch) -> int:
    return int((batch["labels"] != IGNORE_INDEX).sum())


# --- the user's own ---------------------------------------------------------------------------------------------------


def _from_file(workload: Workload) -> Training:
    written = workload.path or ""
    file, _, name = written.rpartition(":")
    if not file or not name:
        raise UsageError(f'workload "{written}" is not "file.py:function"', remedy="name the file and its function")
    function = getattr(_module(Path(file)), name, None)
    if not callable(function):
        raise UsageError(f"{file} has no function {name}", remedy="name the function that builds the workload")
    built = function()
    if not isinstance(built, tuple) or len(built) != 4 or not isinstance(built[0], nn.Module):
        raise UsageError(
            f"{written} returned {type(built).__name__}, not (model, dataset, loss, num_tokens)",
            remedy="return these four, as the documentation of workloads shows",
        )
    model, dataset, loss, num_tokens = built
    if not callable(loss) or len(inspect.signature(loss).parameters) != 2 or not callable(num_tokens):
        raise UsageError(f"{written} has to return loss(model, batch) and num_tokens(batch) as third and fourth")
    return Training(model=model, dataset=dataset, loss=loss, num_tokens=num_tokens)


def _module(file: Path) -> ModuleType:
    name = f"ds_accum_workload_{file.stem}"
    if name in sys.modules:
        return sys.modules[name]
    if not file.is_file():
        raise UsageError(f"there is no workload file {file}", remedy="give the path of a Python file")
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise UsageError(f"{file} is no Python file", remedy="give the path of a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # What it imports from beside itself, as if it were run.
    sys.path.insert(0, str(file.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


# --- Hugging Face -----------------------------------------------------------------------------------------------------


def _hugging_face(workload: Workload) -> Training:
    try:
        from transformers import AutoConfig, AutoModelForCausalLM
    except ImportError as error:
        raise UsageError(
            "a Hugging Face workload needs transformers, which can't be imported here",
            remedy="pip install transformers, or leave the workload to the built-in text",
        ) from error
    path = Path(workload.path or "")
    config_file = path / "config.json" if path.is_dir() else path
    if not config_file.is_file():
        raise UsageError(
            f"there is no {config_file}", remedy="give a folder with a config.json; nothing is downloaded for you"
        )
    config = AutoConfig.from_pretrained(str(config_file), local_files_only=True)
    for name, value in config.to_dict().items():
        # It would draw other numbers in every variant.
        if "drop" in name and isinstance(value, float):
            setattr(config, name, 0.0)
    model = AutoModelForCausalLM.from_config(config)
    vocabulary = min(int(model.config.vocab_size), 50_000)
    dataset = GeneratedText(
        vocabulary=vocabulary, sequence_length=workload.sequence_length, seed=workload.seed, shifted=False
    )
    return Training(model=model.float(), dataset=dataset, loss=_loss_of_output, num_tokens=_labels_after_the_first)


def _loss_of_output(model: Any, batch: Batch) -> Tensor:
    loss: Tensor = model(**batch).loss
    return loss


def _labels_after_the_first(batch: Batch) -> int:
    """Hugging Face's causal models predict label t + 1 at position t, so the first of each sample is not counted."""
    return int((batch["labels"][:, 1:] != IGNORE_INDEX).sum())
