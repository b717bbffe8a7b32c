"""The `expert_parallel` block asks AutoEP for something that it refuses.

AutoEP checks its block by hand when the engine starts, and only while it is enabled: words, sizes, names of modules,
and which of its features go together. It stops at the first thing it dislikes; all of them are named here. One key is
refused as soon as the config loads, enabled or not: `load_balance_coeff`, for which this release has no
implementation.

`enabled` counts as Python counts: the string "false" is on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from ds_accum.config.launch import Launch
from ds_accum.config.model import BlockReading
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import setting
from ds_accum.lint.wording import one_of, what

BLOCK = "expert_parallel"

BAD = (
    Example(
        config='{"train_batch_size": 8, "expert_parallel": {"enabled": false, "load_balance_coeff": 0.01}}',
        reports=(
            Report(
                at="expert_parallel.load_balance_coeff",
                message="expert_parallel.load_balance_coeff must be null, but is the number 0.01",
            ),
        ),
    ),
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 1,
  "expert_parallel": {"enabled": true, "autoep_size": 3, "score_apply": "after"}
}
""",
        launch=Launch(world_size=2),
        reports=(
            Report(
                at="expert_parallel.autoep_size",
                message="expert_parallel.autoep_size 3 does not divide the 2 ranks of a pipeline stage",
            ),
            Report(
                at="expert_parallel.score_apply",
                message='expert_parallel.score_apply must be "auto", "pre" or "post", but is the string "after"',
            ),
        ),
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "expert_parallel": {
    "enabled": true,
    "gate_up_impl": "fused",
    "use_grouped_mm": false
  }
}
""",
        reports=(
            Report(
                at="expert_parallel.gate_up_impl",
                message='gate_up_impl "fused" (line 5) needs use_grouped_mm, but that is false (line 6)',
            ),
        ),
    ),
)

GOOD = (
    Example(
        config='{"train_batch_size": 8, "expert_parallel": {"enabled": true, "autoep_size": 1, "score_func": "auto"}}'
    ),
    Example(
        config='{"train_batch_size": 8, "expert_parallel": {"enabled": false, "score_func": "relu", "autoep_size": 0}}'
    ),
)


class _Wanted(NamedTuple):
    """What AutoEP wants of one key. `words` are choices, `least` the smallest integer, `name` that of a submodule.

    A number may be a fraction where `fraction` says so, and null where `null` does.
    """

    words: tuple[str, ...] = ()
    least: int | None = None
    fraction: bool = False
    name: bool = False
    switch: bool = False
    null: bool = False

    def accepts(self, value: Any) -> bool:
        if value is None:
            return self.null
        if self.words:
            return isinstance(value, str) and value in self.words
        if self.least is not None:
            return isinstance(value, int | float if self.fraction else int) and value >= self.least
        if self.switch:
            return isinstance(value, bool)
        return isinstance(value, str) and value != "" and "." not in value

    @property
    def said(self) -> str:
        if self.words:
            return one_of(self.words)
        if self.least is not None:
            return f"{'a number' if self.fraction else 'an integer'} of at least {self.least}"
        return "true or false" if self.switch else "the name of a direct submodule or attribute, without dots"


PRESETS = ("mixtral", "qwen3_moe", "qwen3_5_moe", "deepseek_v2", "deepseek_v3", "minimax_m3")
ACTIVATIONS = ("swiglu", "geglu_tanh", "swiglu_clamped", "swiglu_oai")

_NAME = _Wanted(name=True, null=True)

# In the order of the keys in `parse_autoep_config` (module_inject/auto_ep_config.py). A key that a release does not
# know is not looked at for it.
_WANTED: dict[str, _Wanted] = {
    "autoep_size": _Wanted(least=1),
    "expert_tensor_parallel_size": _Wanted(least=1),
    "validate_folding_routing": _Wanted(switch=True),
    "async_split_plan": _Wanted(switch=True),
    "expert_pattern": _NAME,
    "router_pattern": _NAME,
    "score_apply": _Wanted(words=("auto", "pre", "post")),
    "row_weighting_impl": _Wanted(words=("auto", "eager", "fused")),
    "gate_up_impl": _Wanted(words=("separate", "fused")),
    "comm_backend": _Wanted(words=("comm", "deepep")),
    "comm_num_sm": _Wanted(least=1),
    "comm_qp_margin": _Wanted(least=0),
    "comm_max_tokens_per_rank": _Wanted(least=0),
    "num_expert_groups": _Wanted(least=1, fraction=True, null=True),
    "num_limited_groups": _Wanted(least=1, fraction=True, null=True),
    "score_func": _Wanted(words=("auto", "softmax", "sigmoid")),
    "expert_w1": _NAME,
    "expert_w2": _NAME,
    "expert_w3": _NAME,
    "num_experts_attr": _NAME,
    "top_k_attr": _NAME,
    "has_shared_experts": _Wanted(switch=True, null=True),
    "shared_experts_pattern": _NAME,
    "shared_experts_gate_pattern": _NAME,
    "expert_activation": _Wanted(words=ACTIVATIONS, null=True),
}

_COMBINE = {
    (0, 19, 2): _Wanted(words=("auto", "weighted_sum", "legacy_bmm")),
    (0, 19, 7): _Wanted(words=("auto", "weighted_sum", "fused_weighted_sum", "legacy_bmm")),
}


def check(context: LintContext) -> Iterator[Finding]:
    block = context.block(BLOCK)
    if not block.present or not block.is_mapping or not block.raw or BLOCK not in context.config.top.block.keys:
        return
    if block.get("load_balance_coeff") is not None:
        yield _wrong("load_balance_coeff", "null", block["load_balance_coeff"], when=When.LOAD)
    if not block.get("enabled"):
        return
    wanted = dict(_WANTED)
    wanted["combine_impl"] = next(kind for since, kind in reversed(_COMBINE.items()) if context.version >= since)
    refused = set()
    for key, kind in wanted.items():
        if key in block.block.keys and block.written(key) and not kind.accepts(block[key]):
            refused.add(key)
            yield _wrong(key, kind.said, block[key])
    yield from _other_values(block, refused)
    yield from _sizes(context, block, refused)
    if context.version >= (0, 19, 7) and not refused & {"combine_impl", "comm_backend", "row_weighting_impl"}:
        yield from _implementations(context, block, refused)
    if context.version >= (0, 19, 3):
        yield from _beside_autotp(context, block)


def _wrong(key: str, wanted: str, value: Any, *, when: When = When.START) -> Finding:
    return Finding(
        at=(BLOCK, key),
        message=f"{BLOCK}.{key} must be {wanted}, but is {what(value)}",
        help="change the value, or leave the key out",
        when=when,
    )


def _other_values(block: BlockReading, refused: set[str]) -> Iterator[Finding]:
    preset = block.get("preset_model")
    if preset is not None and preset not in PRESETS:
        yield _wrong("preset_model", one_of(PRESETS), preset)
    factor = block.get("routed_scaling_factor", "auto")
    if factor != "auto" and not isinstance(factor, int | float):
        yield _wrong("routed_scaling_factor", 'a number or "auto"', factor)
    pattern = block.get("moe_layer_pattern")
    if pattern is not None and not _is_a_pattern(pattern):
        yield _wrong("moe_layer_pattern", "a regular expression", pattern)
    groups, limit = block.get("num_expert_groups"), block.get("num_limited_groups")
    usable = not refused & {"num_expert_groups", "num_limited_groups"}
    if usable and groups is not None and limit is not None and limit > groups:
        yield Finding(
            at=(BLOCK, "num_limited_groups"),
            message=f"{BLOCK}.num_limited_groups {limit} is more than num_expert_groups {groups}",
            help=f"use at most {groups}",
        )


def _is_a_pattern(value: Any) -> bool:
    try:
        re.compile(value)
    except (re.error, TypeError, ValueError, RecursionError, OverflowError):
        return False
    return True


def _sizes(context: LintContext, block: BlockReading, refused: set[str]) -> Iterator[Finding]:
    launch = context.launch
    if refused & {"autoep_size", "expert_tensor_parallel_size"}:
        return
    size, inner = block.get("autoep_size", 1), block.get("expert_tensor_parallel_size", 1)
    if launch.world_size is not None and launch.world_size % launch.pipeline_parallel_size == 0:
        ranks = launch.world_size // launch.pipeline_parallel_size
        if ranks % size != 0:
            yield Finding(
                at=(BLOCK, "autoep_size"),
                message=f"{BLOCK}.autoep_size {size} does not divide the {ranks} ranks of a pipeline stage",
                help=f"use a divisor of {ranks}",
            )
    if inner != 1 and "expert_tensor_parallel_size" in block.block.keys:
        yield Finding(
            at=(BLOCK, "expert_tensor_parallel_size"),
            message=f"{BLOCK}.expert_tensor_parallel_size must be 1, but is {inner}: the key is only reserved",
            help="leave it out",
        )


def _implementations(context: LintContext, block: BlockReading, refused: set[str]) -> Iterator[Finding]:
    """Which of the fast paths go together (0.19.7 brought DeepEP, 0.19.8 the fused ones)."""

    def needs(key: str, needed: str) -> Finding:
        return Finding(
            at=(BLOCK, key),
            message=f"{setting(context, block[key], BLOCK, key)} needs {needed}",
            help=f"leave {key} out, or change the other",
        )

    def is_(key: str) -> str:
        return f"{setting(context, block.get(key), BLOCK, key)}"

    is_alone = "autoep_size" not in refused and block.get("autoep_size", 1) == 1
    deepep = block.get("comm_backend") == "deepep"
    if deepep and block.get("comm_max_tokens_per_rank", 0) == 0:
        yield needs("comm_backend", "comm_max_tokens_per_rank, the most tokens that one rank can route")
    if deepep and not is_alone and block.get("combine_impl") == "fused_weighted_sum":
        yield needs("combine_impl", f"another backend than {is_('comm_backend')}, which combines by itself")
    if "gate_up_impl" in block.block.keys and block.get("gate_up_impl") == "fused" and not block.get("use_grouped_mm"):
        value = setting(context, block.get("use_grouped_mm"), BLOCK, "use_grouped_mm").removeprefix("use_grouped_mm ")
        yield needs("gate_up_impl", f"use_grouped_mm, but that is {value}")
    if "row_weighting_impl" in block.block.keys and block.get("row_weighting_impl") == "fused":
        if not deepep:
            yield needs("row_weighting_impl", f'comm_backend "deepep", but here is {is_("comm_backend")}')
        elif is_alone:
            yield needs("row_weighting_impl", f"an autoep_size greater than 1, but here is {is_('autoep_size')}")


def _beside_autotp(context: LintContext, block: BlockReading) -> Iterator[Finding]:
    """What AutoEP does not do while AutoTP is on, and what the two must agree about."""
    config = context.config
    tensor = context.block("tensor_parallel")
    theirs, ours = tensor.get("preset_model"), block.get("preset_model")
    if theirs is not None and ours in PRESETS and ours != theirs:
        yield Finding(
            at=(BLOCK, "preset_model"),
            message=f"{BLOCK}.{setting(context, ours, BLOCK, 'preset_model')} is another than"
            f" tensor_parallel.{setting(context, theirs, 'tensor_parallel', 'preset_model')}",
            help="use the same for both, or set one of them only",
        )
    size = tensor.get("autotp_size")
    if not isinstance(size, int) or size <= 1 or isinstance(tensor.raw.get("autotp_size"), str):
        return
    with_autotp = f"AutoEP beside {setting(context, size, 'tensor_parallel', 'autotp_size')}"
    ep_size = block.get("autoep_size", 1)
    if ep_size == 1:
        yield Finding(
            at=(BLOCK, "autoep_size"),
            message=f"{with_autotp} needs an autoep_size greater than 1",
            help="raise autoep_size, or turn one of the two off",
        )
    offloaded = [
        name
        for name in ("offload_optimizer", "offload_param")
        if context.block(f"zero_optimization.{name}").present and context.block(f"zero_optimization.{name}").is_mapping
    ]
    for name in offloaded:
        # The block alone counts, whatever its device.
        yield Finding(
            at=("zero_optimization", name),
            on_key=True,
            message=f"{with_autotp} does not work with {name} ({context.line('zero_optimization', name)})",
            help="remove the block",
        )
    refusals = (
        (("use_data_before_expert_parallelism",), config.top.get("use_data_before_expert_parallelism")),
        (("compile", "deepcompile"), context.block("compile").get("deepcompile")),
        ((BLOCK, "async_split_plan"), block.get("async_split_plan") is True and ep_size != 1),
        ((BLOCK, "combine_impl"), block.get("combine_impl") == "fused_weighted_sum"),
    )
    for path, is_on in refusals:
        if is_on:
            value = _value(context, path)
            yield Finding(
                at=path,
                message=f"{with_autotp} does not work with {setting(context, value, *path)}",
                help=f"leave {path[-1]} out",
            )


def _value(context: LintContext, path: tuple[str, ...]) -> Any:
    return context.block(path[0])[path[-1]] if len(path) > 1 else context.config.top[path[0]]


RULE = Rule(
    code="DSA604",
    name="invalid-expert-parallel",
    summary="the expert_parallel block asks AutoEP for something that it refuses",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
