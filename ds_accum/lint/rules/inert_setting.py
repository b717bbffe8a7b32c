"""Settings ask for something that DeepSpeed does not do at this ZeRO stage.

Each stage has an implementation of its own, and each takes its own settings out of `zero_optimization`. What a stage
does not take is not refused: the config of one stage, copied for another, keeps keys that look as if they did
something. Only values other than the default are reported, as a default asks for nothing; all in one line, as they came
in one copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ds_accum.config import support
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, RemoveKey
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import zero_stage

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 2,
    "stage3_prefetch_bucket_size": 1e7,
    "stage3_param_persistence_threshold": 1e6
  }
}
""",
        reports=(
            Report(
                at="zero_optimization.stage3_prefetch_bucket_size",
                message="nothing looks at stage3_prefetch_bucket_size (line 6) and stage3_param_persistence_threshold"
                " (line 7) at ZeRO stage 2 (line 5)",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 2
  }
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 2,
    "contiguous_gradients": false,
    "offload_optimizer": {"device": "cpu"}
  }
}
""",
        reports=(
            Report(
                at="zero_optimization.contiguous_gradients",
                message='nothing looks at contiguous_gradients (line 6) with the optimizer offloaded to "cpu" at ZeRO'
                " stage 2 (line 5)",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {"device": "cpu"}
  }
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 3,
    "stage3_prefetch_bucket_size": 1e7,
    "stage3_param_persistence_threshold": 1e6
  }
}
"""
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 2, "stage3_prefetch_bucket_size": 5e7, "contiguous_gradients": true}
}
"""
    ),
)

# What only the optimizer of ZeRO-3 takes. The two that gather the weights of a saved model are not among them: below
# stage 3 the weights are whole anyway.
_STAGE_3 = (
    "stage3_prefetch_bucket_size",
    "stage3_param_persistence_threshold",
    "stage3_model_persistence_threshold",
    "stage3_max_live_parameters",
    "stage3_max_reuse_distance",
    "stage3_module_granularity_threshold",
    "stage3_use_all_reduce_for_fetch_params",
    "stage3_allgather_sequential",
    "sub_group_size",
    "zero_hpz_partition_size",
    "zero_quantized_weights",
    "zero_quantized_nontrainable_weights",
    "zero_quantized_gradients",
    "log_trace_cache_warnings",
    "enable_sanity_checks",
    "save_muon_momentum_buffer_in_memory",
)
# What only that of ZeRO-1 and ZeRO-2 takes.
_STAGES_1_AND_2 = (
    "allgather_bucket_size",
    "round_robin_gradients",
    "use_multi_rank_bucket_allreduce",
    "ignore_unused_parameters",
    "parameter_alignment",
)
# What both take.
_REDUCTION = ("reduce_scatter", "reduce_bucket_size", "contiguous_gradients", "overlap_comm")
# `BF16_Optimizer`, which stands in for ZeRO-1, takes one of them.
_NOT_IN_BF16_OPTIMIZER = tuple(key for key in (*_STAGES_1_AND_2, *_REDUCTION) if key != "allgather_bucket_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inert:
    """Keys of a block that nothing looks at where `applies`; `where` says where that is."""

    keys: tuple[str, ...]
    applies: Callable[[LintContext], bool]
    where: Callable[[LintContext], str] = zero_stage
    block: str = "zero_optimization"


def _bf16_optimizer(context: LintContext) -> str:
    return f"{zero_stage(context)} for bf16 with fp32 accumulation"


def _offloaded(context: LintContext) -> str:
    return f'with the optimizer offloaded to "{support.optimizer_device(context.config)}" at {zero_stage(context)}'


def _not_offloaded(context: LintContext) -> str:
    return f"without an offloaded optimizer at {zero_stage(context)}"


def _keeps_low_precision_gradients(context: LintContext) -> bool:
    config = context.config
    in_a_pipeline = config.zero_stage == 0 and context.launch.pipeline_parallel_size > 1
    return config.enabled("bf16") and not support.uses_bf16_optimizer(config) and not in_a_pipeline


INERT: tuple[Inert, ...] = (
    Inert(
        keys=(*_STAGE_3, *_STAGES_1_AND_2, *_REDUCTION),
        applies=lambda context: context.config.zero_stage == 0 and _is_managed(context),
    ),
    Inert(keys=_STAGE_3, applies=lambda context: context.config.zero_stage in (1, 2)),
    Inert(keys=_STAGES_1_AND_2, applies=lambda context: context.config.zero_stage == 3),
    Inert(
        keys=_NOT_IN_BF16_OPTIMIZER,
        applies=lambda context: support.uses_bf16_optimizer(context.config),
        where=_bf16_optimizer,
    ),
    Inert(
        keys=("contiguous_gradients",),
        applies=lambda context: (
            context.config.zero_stage in (1, 2) and support.optimizer_device(context.config) in ("cpu", "nvme")
        ),
        where=_offloaded,
    ),
    Inert(
        # Looked at where the norm is taken of offloaded gradients, and nowhere else.
        keys=("ignore_unused_parameters",),
        applies=lambda context: (
            context.config.zero_stage in (1, 2)
            and support.optimizer_device(context.config) == "none"
            and not support.uses_bf16_optimizer(context.config)
        ),
        where=_not_offloaded,
    ),
    Inert(keys=("immediate_grad_update",), applies=_keeps_low_precision_gradients, block="bf16"),
)


def _is_managed(context: LintContext) -> bool:
    # An unmanaged window looks at overlap_comm without ZeRO as well, and refuses it.
    top = context.config.top
    return "managed_gradient_accumulation" not in top.block.keys or bool(top.get("managed_gradient_accumulation"))


def check(context: LintContext) -> Iterator[Finding]:
    for inert in INERT:
        if context.config.zero_stage is None or not inert.applies(context):
            continue
        block = context.block(inert.block)
        names = {key.name_in_model or name: name for name, key in block.block.keys.items()}
        keys = [
            name
            for name in (names.get(key, key) for key in inert.keys)
            if block.written(name)
            and name in block.values
            and name in block.block.keys
            and block.values[name] != block.block.keys[name].default
            and block.values[name] is not None
            and not _is_already_off(name, block.values[name])
        ]
        if not keys:
            continue
        keys.sort(key=lambda name: list(block.raw).index(name))
        said = [f"{name} ({context.line(*block.path, name)})" for name in keys]
        where = inert.where(context)
        yield Finding(
            at=(*block.path, keys[0]),
            on_key=True,
            message=f"nothing looks at {_listed(said)} {where if where.startswith('with') else f'at {where}'}",
            help="remove " + ("it" if len(keys) == 1 else "them") + ", or use the stage that they are for",
            fix=Fix(
                title="remove what nothing looks at",
                changes=tuple(RemoveKey((*block.path, name)) for name in keys),
                is_safe=True,
            ),
        )


def _is_already_off(name: str, value: object) -> bool:
    # Its default is "as the stage likes it", and off is what these stages like.
    return name == "overlap_comm" and value is False


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


RULE = Rule(
    code="DSA222",
    name="inert-setting",
    summary="settings ask for something that DeepSpeed does not do at this ZeRO stage",
    rationale=__doc__,
    when=When.NEVER,
    check=check,
    severity=Severity.INFO,
    bad=BAD,
    good=GOOD,
)
