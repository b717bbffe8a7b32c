"""The learning rates that DSA531 names are those that the installed classes bring."""

from __future__ import annotations

import inspect

import deepspeed.ops.adagrad
import deepspeed.ops.adam
import deepspeed.ops.lamb
import deepspeed.ops.lion
import pytest
import torch

from ds_accum.config.optimizers import torch_optimizers
from ds_accum.lint.rules.default_learning_rate import DEFAULTS

_FOLDERS = (deepspeed.ops.adam, deepspeed.ops.lamb, deepspeed.ops.lion, deepspeed.ops.adagrad)


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_class_brings_the_learning_rate_that_the_rule_names(name: str) -> None:
    places = (torch.optim,) if name.startswith("torch.optim.") else _FOLDERS
    (found,) = (getattr(place, name.split(".")[-1]) for place in places if hasattr(place, name.split(".")[-1]))
    signatures = [inspect.signature(kind.__init__).parameters for kind in found.__mro__]
    # One of them hands its arguments on to the class that it is derived from.
    assert next(item["lr"].default for item in signatures if "lr" in item) == DEFAULTS[name]


def test_every_optimizer_of_torch_that_a_config_can_build_is_named() -> None:
    # The base of all; what needs a closure; what takes matrices or sparse gradients alone.
    unusual = {"Optimizer", "LBFGS", "Muon", "SparseAdam"}
    assert {f"torch.optim.{name}" for name in set(torch_optimizers()) - unusual} == {
        name for name in DEFAULTS if name.startswith("torch.optim.")
    }
