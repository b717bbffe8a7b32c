"""ZenFlow or a partial offload is set up in a way that the engine can't run.

Both load without a complaint. ZenFlow's intervals are checked when the engine starts: `select_interval` belongs to the
strategies "step" and "epoch" and must be a number there, and a gradient must not be applied more rarely than it is
selected. It has an implementation of its own for ZeRO-1 and ZeRO-2, which keeps the optimizer on the CPU and must have
its parameters from the config; without ZeRO there is none, and the first step fails. A partial offload (`ratio` below
1) pairs DeepSpeedCPUAdam with torch's AdamW, and takes no other optimizer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ds_accum.config import support
from ds_accum.config.launch import Launch
from ds_accum.config.model import BlockReading
from ds_accum.lint.built_from_config import any_optimizer, optimizer_from_config
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import setting, zero_stage
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 2,
    "zenflow": {"select_strategy": "step", "select_interval": 2, "update_interval": 2}
  }
}
""",
        reports=(
            Report(
                at="zero_optimization.zenflow",
                message="ZenFlow at ZeRO stage 2 (line 5) needs the optimizer on the CPU, but offload_optimizer is off",
            ),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {"device": "cpu"},
    "zenflow": {
      "select_strategy": "step",
      "select_interval": 2,
      "update_interval": 4
    }
  }
}
""",
        reports=(
            Report(
                at="zero_optimization.zenflow.select_interval",
                message="zero_optimization.zenflow.select_interval 2 is less than update_interval 4 (line 10)",
            ),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
  "zero_allow_untested_optimizer": true,
  "zero_optimization": {
    "stage": 3,
    "offload_optimizer": {"device": "cpu", "ratio": 0.5}
  }
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="zero_optimization.offload_optimizer.ratio",
                message="zero_optimization.offload_optimizer.ratio 0.5 takes DeepSpeedCPUAdam, but the config names"
                ' type "SGD" (line 3)',
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {"device": "cpu"},
    "zenflow": {"select_strategy": "step", "select_interval": 4, "update_interval": 2}
  }
}
"""
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 3,
    "offload_optimizer": {"device": "cpu", "ratio": 0.5}
  }
}
"""
    ),
)

_ZENFLOW = ("zero_optimization", "zenflow")


def check(context: LintContext) -> Iterator[Finding]:
    zenflow = support.zenflow(context.config)
    if zenflow is not None and not zenflow.errors:
        yield from _intervals(context, zenflow)
        yield from _surroundings(context, zenflow)
    yield from _partial_offload(context)


def _intervals(context: LintContext, zenflow: BlockReading) -> Iterator[Finding]:
    """What `configure_zenflow` (runtime/zenflow/engine.py) checks, whatever the stage."""
    strategy, select, update = zenflow["select_strategy"], zenflow["select_interval"], zenflow["update_interval"]
    at = (*_ZENFLOW, "select_interval")
    if strategy == "auto" and isinstance(select, int):
        yield Finding(
            at=at,
            message=f"zero_optimization.zenflow.select_interval {shown(select)} has no meaning with"
            f" {setting(context, strategy, *_ZENFLOW, 'select_strategy')}, and DeepSpeed refuses it",
            help='remove it, or set select_strategy to "step" or "epoch"',
        )
    elif strategy != "auto" and not isinstance(select, int):
        yield Finding(
            at=at,
            message=f"zero_optimization.zenflow.select_interval must be a number with"
            f" {setting(context, strategy, *_ZENFLOW, 'select_strategy')}, but is {shown(select)}",
            help="give the number of steps or epochs after which gradients are selected anew",
        )
    elif strategy == "step" and isinstance(update, int) and select != 0 and select < update:
        # An epoch has as many steps as the training data, which may be enough.
        yield Finding(
            at=at,
            message=f"zero_optimization.zenflow.select_interval {shown(select)} is less than"
            f" {setting(context, update, *_ZENFLOW, 'update_interval')}",
            help=f"set it to {shown(update)} or more",
        )


def _surroundings(context: LintContext, zenflow: BlockReading) -> Iterator[Finding]:
    """What ZenFlow needs of the rest of the config."""
    config, stage = context.config, context.config.zero_stage
    if stage is None:
        return
    if stage == 0 or support.uses_bf16_optimizer(config):
        without = "without ZeRO" if stage == 0 else "for bf16 with fp32 accumulation"
        yield Finding(
            at=_ZENFLOW,
            on_key=True,
            when=When.FIRST_STEP,
            message=f"ZenFlow does not exist {without} at {zero_stage(context)}",
            help="use ZeRO stage 1, 2 or 3, or remove the block" if stage == 0 else "remove it, or grad_accum_dtype",
        )
        return
    if zenflow["offload"] and support.overlaps_communication(config) is False:
        optimizer = any_optimizer(context)
        # ZeRO-3 learnt ZenFlow in 0.18.1; without an optimizer ZeRO-1 and 2 don't start for that reason, ZeRO-3 does.
        if stage < 3 or (context.version >= (0, 18, 1) and optimizer is not None):
            yield Finding(
                at=(*_ZENFLOW, "offload"),
                message="zero_optimization.zenflow.offload needs overlap_comm, but that is"
                f" {setting(context, False, 'zero_optimization', 'overlap_comm').partition(' ')[2]}",
                help='set "overlap_comm": true in zero_optimization',
                depends_on=optimizer.depends_on if optimizer is not None and stage == 3 else None,
            )
    if stage == 3:
        return
    if support.optimizer_device(config) == "none":
        yield Finding(
            at=_ZENFLOW,
            on_key=True,
            message=f"ZenFlow at {zero_stage(context)} needs the optimizer on the CPU, but offload_optimizer is off",
            help='add "offload_optimizer": {"device": "cpu"}',
        )
    elif config.block("optimizer").get("params") is None:
        yield Finding(
            at=_ZENFLOW,
            on_key=True,
            message=f"ZenFlow at {zero_stage(context)} takes the settings of its optimizer from optimizer.params, which"
            " the config does not have",
            help='add "optimizer": {"type": "AdamW", "params": {"lr": ...}}',
        )
    elif context.block("zero_optimization").get("reduce_scatter") is False:
        yield Finding(
            at=("zero_optimization", "reduce_scatter"),
            when=When.FIRST_STEP,
            message=f"zero_optimization.reduce_scatter is false, which zenflow ({context.line(*_ZENFLOW)}) can't do at"
            f" {zero_stage(context)}",
            help="remove it",
        )
    elif not zenflow["overlap_step"]:
        yield from _other_optimizer(context)


def _other_optimizer(context: LintContext) -> Iterator[Finding]:
    """ZenFlow hands its own optimizer an argument that no other takes (zenflow_stage_1_and_2.py)."""
    other, built = _not_cpu_adam(context), optimizer_from_config(context)
    if other is None or built is None:
        return
    yield Finding(
        at=_ZENFLOW,
        on_key=True,
        when=When.FIRST_STEP,
        message=f"ZenFlow at {zero_stage(context)} takes Adam or AdamW, but the config names {other}",
        help="use AdamW, or remove the block",
        depends_on=built.depends_on,
    )


def _not_cpu_adam(context: LintContext) -> str | None:
    """What the config names in the place of an Adam of DeepSpeed's; None if that is what it names, or nothing."""
    optimizer = context.block("optimizer")
    name, params = optimizer.get("type"), optimizer.get("params")
    if isinstance(name, str) and name.lower() not in ("adam", "adamw"):
        return setting(context, name, "optimizer", "type")
    if isinstance(params, Mapping) and params.get("torch_adam"):
        return setting(context, params["torch_adam"], "optimizer", "params", "torch_adam")
    return None


def _partial_offload(context: LintContext) -> Iterator[Finding]:
    """The assertion of ZeRO-3's constructor about its second optimizer (zero/stage3.py)."""
    config = context.config
    offload = config.block("zero_optimization.offload_optimizer")
    ratio, device = offload.get("ratio"), offload.get("device")
    if config.zero_stage != 3 or ratio in (None, 1) or device not in ("cpu", "nvme"):
        return
    built = optimizer_from_config(context)
    if support.builds_cpu_adam(config) or built is None:
        return
    other = _not_cpu_adam(context) or f"zenflow ({context.line(*_ZENFLOW)})"
    yield Finding(
        at=(*offload.path, "ratio"),
        message=f"zero_optimization.offload_optimizer.ratio {shown(ratio)} takes DeepSpeedCPUAdam, but the config names"
        f" {other}",
        help="use Adam or AdamW, or remove the ratio",
        depends_on=built.depends_on,
    )


RULE = Rule(
    code="DSA209",
    name="unsupported-offload",
    summary="an offload by ZenFlow, or of a part of the optimizer, is set up in a way that the engine can't run",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
