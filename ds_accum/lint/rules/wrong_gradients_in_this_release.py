"""The DeepSpeed release of this launch trains this config with wrong gradients, and a later one does not.

Some releases computed something else than the config says: they dropped micro-batches, averaged too little or divided
twice, without an error. The table holds those that a config shows, with the release that brought them in, the one that
mended them, and where it was reported; each was read in the source of both. Where only the model or the script can tell
whether it strikes, it is not here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ds_accum.config import support
from ds_accum.config.launch import Launch
from ds_accum.config.model import Path
from ds_accum.config.schema import Version, format_version
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, Severity, When
from ds_accum.lint.launch_facts import accumulation_steps, is_one_rank
from ds_accum.lint.rule import Example, Report, Rule

BAD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 4,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 2}
}
""",
        launch=Launch(world_size=1, deepspeed_version=(0, 18, 2)),
        deepspeed=None,
        reports=(
            Report(
                at="zero_optimization.stage",
                message="DeepSpeed 0.18.2 keeps only the last micro-batch of a step at ZeRO stage 2: 0.17.6 brought it"
                " in, 0.18.3 mended it (DeepSpeed #7718)",
            ),
        ),
    ),
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": true}},
  "bf16": {"enabled": true}
}
""",
        launch=Launch(world_size=1, deepspeed_version=(0, 18, 5)),
        deepspeed=None,
        reports=(
            Report(
                at="bf16.enabled",
                message="DeepSpeed 0.18.5 divides bf16 gradients without ZeRO, unless the optimizer is its own Adam, by"
                " a loss scale of 65536 that the loss was never multiplied by: 0.18.3 brought it in, 0.18.6 mended it"
                " (DeepSpeed #7837, PR #7839)",
            ),
            Report(
                at="bf16.enabled",
                message="DeepSpeed 0.18.5 never zeroes bf16 gradients without ZeRO, unless the optimizer is its own"
                " Adam, so that they add up for ever: 0.17.6 brought it in, 0.18.6 mended it (DeepSpeed #7837, PR"
                " #7839)",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 4,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 2}
}
""",
        launch=Launch(world_size=1, deepspeed_version=(0, 18, 3)),
        deepspeed=None,
    ),
    Example(
        config="""{
  "train_micro_batch_size_per_gpu": 2,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "bf16": {"enabled": true}
}
""",
        launch=Launch(world_size=1, deepspeed_version=(0, 18, 5)),
        deepspeed=None,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongRelease:
    """What the releases from `since` (None: from before 0.14.0) up to `mended`, not included, do wrong.

    `does` follows "DeepSpeed 0.18.2", `at` is the setting that asks for it.
    """

    since: Version | None
    mended: Version
    at: Path
    does: str
    applies: Callable[[LintContext], bool]
    reference: str
    severity: Severity = Severity.WARNING


def _accumulates(context: LintContext) -> bool:
    steps = accumulation_steps(context)
    return steps is not None and steps > 1


def _is_offloaded(context: LintContext) -> bool:
    return support.optimizer_device(context.config) in ("cpu", "nvme") and support.zenflow(context.config) is None


def _is_bf16_without_zero(context: LintContext) -> bool:
    config = context.config
    return config.zero_stage == 0 and support.model_dtype(config) == "bf16" and _is_no_pipeline(context)


def _is_no_pipeline(context: LintContext) -> bool:
    return context.launch.pipeline_parallel_size == 1


def _builds_fused_adam(context: LintContext) -> bool | None:
    """Whether the optimizer is DeepSpeed's own Adam; None where the script may pass another one."""
    optimizer = context.config.block("optimizer")
    name, params = optimizer.get("type"), optimizer.get("params")
    if not isinstance(name, str) or name.lower() not in ("adam", "adamw"):
        return False
    if isinstance(params, dict) and params.get("torch_adam"):
        return False
    return context.builds_optimizer_from_config


RELEASES: tuple[WrongRelease, ...] = (
    WrongRelease(
        since=(0, 15, 2),
        mended=(0, 19, 0),
        at=("zero_optimization", "offload_optimizer"),
        does="loses micro-batches of a step, and with them a part of the norm, with the optimizer offloaded",
        applies=lambda context: (
            context.config.zero_stage in (1, 2) and _is_offloaded(context) and (accumulation_steps(context) or 0) > 2
        ),
        reference="DeepSpeed PR #7967",
    ),
    WrongRelease(
        since=(0, 17, 6),
        mended=(0, 18, 3),
        at=("zero_optimization", "stage"),
        does="keeps only the last micro-batch of a step at ZeRO stage 2",
        applies=lambda context: context.config.zero_stage == 2 and not _is_offloaded(context) and _accumulates(context),
        reference="DeepSpeed #7718",
    ),
    WrongRelease(
        since=(0, 17, 6),
        mended=(0, 18, 6),
        at=("bf16", "enabled"),
        does="never zeroes bf16 gradients without ZeRO, unless the optimizer is its own Adam, so that they add up for"
        " ever",
        applies=lambda context: _is_bf16_without_zero(context) and _builds_fused_adam(context) is False,
        reference="DeepSpeed #7837, PR #7839",
    ),
    WrongRelease(
        since=(0, 18, 3),
        mended=(0, 18, 6),
        at=("bf16", "enabled"),
        does="divides bf16 gradients without ZeRO, unless the optimizer is its own Adam, by a loss scale of 65536 that"
        " the loss was never multiplied by",
        applies=lambda context: (
            _is_bf16_without_zero(context) and _scales_by_default(context) and _builds_fused_adam(context) is False
        ),
        reference="DeepSpeed #7837, PR #7839",
    ),
    WrongRelease(
        since=(0, 18, 3),
        mended=(0, 18, 4),
        at=("gradient_accumulation_steps",),
        does="divides the gradient by the micro-batches of a step once more where Hugging Face has done so",
        applies=lambda context: (
            context.launch.framework == "huggingface"
            and context.config.zero_stage in (1, 2, 3)
            and _accumulates(context)
        ),
        reference="accelerate #3877, DeepSpeed PR #7724",
    ),
    WrongRelease(
        since=(0, 18, 3),
        mended=(0, 19, 0),
        at=("data_types", "grad_accum_dtype"),
        does="leaves the last micro-batch of a step out of the reduction at ZeRO stage 1 for bf16 with fp32"
        " accumulation",
        applies=lambda context: (
            support.uses_bf16_optimizer(context.config)
            and not context.block("bf16").get("immediate_grad_update")
            and not is_one_rank(context)
        ),
        reference="DeepSpeed PR #7985",
    ),
    WrongRelease(
        since=(0, 18, 5),
        mended=(0, 19, 3),
        at=("zero_optimization", "stage"),
        does="divides the gradient by the micro-batches of a step once for each pipeline stage behind",
        applies=lambda context: (
            not _is_no_pipeline(context) and context.config.zero_stage == 1 and _accumulates(context)
        ),
        reference="DeepSpeed #8152, PR #8154",
    ),
    WrongRelease(
        since=None,
        mended=(0, 19, 3),
        at=("zero_optimization", "overlap_comm"),
        does="may reduce gradients that are still being written, or use buffers that are in use, with overlap_comm",
        applies=lambda context: (
            context.config.zero_stage in (1, 2)
            and support.overlaps_communication(context.config) is True
            and not support.uses_bf16_optimizer(context.config)
            and not is_one_rank(context)
        ),
        reference="DeepSpeed #7188, #8061, PR #7371, PR #7965, PR #8080",
        severity=Severity.INFO,
    ),
)


def _scales_by_default(context: LintContext) -> bool:
    # The scale is that of the fp16 block, which nobody writes beside bf16.
    fp16 = context.block("fp16")
    return bool(fp16.get("loss_scale") == 0 and fp16.get("initial_scale_power") == 16)


def check(context: LintContext) -> Iterator[Finding]:
    if context.config.zero_stage is None or support.has_optimizer(context.config, context.launch) is False:
        return
    for release in RELEASES:
        is_after = release.since is None or context.version >= release.since
        if not is_after or context.version >= release.mended or not release.applies(context):
            continue
        mended = format_version(release.mended)
        history = f"{mended} mended it"
        if release.since is not None:
            history = f"{format_version(release.since)} brought it in, {history}"
        yield Finding(
            at=release.at,
            message=f"DeepSpeed {format_version(context.version)} {release.does}: {history} ({release.reference})",
            help=f"use DeepSpeed {mended} or newer",
            severity=release.severity,
        )


RULE = Rule(
    code="DSA901",
    name="wrong-gradients-in-this-release",
    summary="the DeepSpeed release of this launch trains this config with wrong gradients, and a later one does not",
    rationale=__doc__,
    when=When.NEVER,
    check=check,
    severity=Severity.WARNING,
    proof=Proof.READ,
    bad=BAD,
    good=GOOD,
    references=tuple(dict.fromkeys(release.reference for release in RELEASES)),
)
