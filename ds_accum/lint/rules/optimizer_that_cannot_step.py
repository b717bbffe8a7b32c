"""The config names an optimizer that needs more for a step than DeepSpeed gives it.

DeepSpeed calls `step()` with nothing, once the gradients are there. LBFGS evaluates the loss several times for each
step and needs a function that does so, which no config can hold; SparseAdam takes gradients as sparse tensors only.
Both are built without a complaint. Where the optimizer is wrapped for fp16 or bf16 without ZeRO, it is made to take a
trial step at start, else the first real one fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ds_accum.config import support
from ds_accum.config.launch import Launch
from ds_accum.lint.built_from_config import optimizer_from_config
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule

BAD = (
    Example(
        config='{"train_batch_size": 8, "optimizer": {"type": "LBFGS", "params": {"lr": 0.1}}}',
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="optimizer.type",
                message="LBFGS needs a function that computes the loss anew, and DeepSpeed calls step() without one",
            ),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "bf16": {"enabled": true},
  "optimizer": {"type": "SparseAdam", "params": {"lr": 1e-3}}
}
""",
        reports=(
            Report(
                at="optimizer.type",
                message="SparseAdam takes sparse gradients only, and DeepSpeed's are dense, unless the script passes"
                " its own optimizer",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config='{"train_batch_size": 8, "optimizer": {"type": "Adam", "params": {"lr": 1e-3}}}',
        launch=Launch(world_size=1, client_optimizer=False),
    ),
)

_NEEDS: Mapping[str, tuple[str, str]] = {
    "LBFGS": (
        "needs a function that computes the loss anew, and DeepSpeed calls step() without one",
        "use AdamW, or run LBFGS without DeepSpeed",
    ),
    "SparseAdam": ("takes sparse gradients only, and DeepSpeed's are dense", "use Adam"),
}


def check(context: LintContext) -> Iterator[Finding]:
    name, built, config = context.block("optimizer").get("type"), optimizer_from_config(context), context.config
    if built is None or not isinstance(name, str) or name not in _NEEDS or config.zero_stage is None:
        return
    wrapped = config.zero_stage == 0 and support.model_dtype(config) != "fp32"
    if name == "SparseAdam" and config.zero_stage == 0 and not wrapped:
        return  # the model's own gradients, which may be sparse
    needs, help_ = _NEEDS[name]
    yield Finding(
        at=("optimizer", "type"),
        when=When.START if wrapped and support.accumulates_in(config) == support.model_dtype(config) else None,
        message=f"{name} {needs}",
        help=help_,
        depends_on=built.depends_on,
    )


RULE = Rule(
    code="DSA508",
    name="optimizer-that-cannot-step",
    summary="the config names an optimizer that needs more for a step than DeepSpeed gives it",
    rationale=__doc__,
    when=When.FIRST_STEP,
    check=check,
    bad=BAD,
    good=GOOD,
)
