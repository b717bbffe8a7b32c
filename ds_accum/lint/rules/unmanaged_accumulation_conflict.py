"""The script is to own the accumulation boundary, and something else in the config owns it already.

`managed_gradient_accumulation: false` leaves it to `step()` to say where a window ends. Pipeline schedules and
DeepCompile's graphs know their micro-batches in advance, and overlapped reduction at ZeRO stages 0 and 1 starts before
`step()` is called; with any of them DeepSpeed refuses to start. Whatever Python takes for false switches it off; a
string, even "false", does not.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.mends import removed
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import setting, zero_stage
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "managed_gradient_accumulation": false,
  "zero_optimization": {
    "stage": 1,
    "overlap_comm": true
  }
}
""",
        reports=(
            Report(
                at="managed_gradient_accumulation",
                message="managed_gradient_accumulation false is not supported with overlap_comm true (line 7) at"
                " ZeRO stage 1 (line 6)",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 1,
    "overlap_comm": true
  }
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "managed_gradient_accumulation": 0,
  "compile": {"deepcompile": true}
}
""",
        reports=(
            Report(
                at="managed_gradient_accumulation",
                message="managed_gradient_accumulation 0 is not supported with deepcompile true (line 5)",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "compile": {"deepcompile": true}
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "managed_gradient_accumulation": false
}
""",
        launch=Launch(world_size=2, pipeline_parallel_size=2),
        reports=(
            Report(
                at="managed_gradient_accumulation",
                message="managed_gradient_accumulation false is not supported with pipeline parallelism (2 stages)",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "managed_gradient_accumulation": false,
  "zero_optimization": {"stage": 2, "overlap_comm": true}
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    top = context.config.top
    if "managed_gradient_accumulation" not in top.block.keys or top.get("managed_gradient_accumulation"):
        return
    managed = shown(top.get("managed_gradient_accumulation"))
    for other in _owners(context):
        yield Finding(
            at=("managed_gradient_accumulation",),
            message=f"managed_gradient_accumulation {managed} is not supported with {other}",
            help="remove it, and let DeepSpeed find the boundary",
            fix=removed(("managed_gradient_accumulation",), is_safe=False),
        )


def _owners(context: LintContext) -> Iterator[str]:
    config = context.config
    if config.zero_stage in (0, 1) and support.overlaps_communication(config):
        yield f"{setting(context, True, 'zero_optimization', 'overlap_comm')} at {zero_stage(context)}"
    if context.launch.pipeline_parallel_size > 1:
        yield f"pipeline parallelism ({context.launch.pipeline_parallel_size} stages)"
    if config.block("compile").get("deepcompile"):
        yield setting(context, True, "compile", "deepcompile")


RULE = Rule(
    code="DSA210",
    name="unmanaged-accumulation-conflict",
    summary="the script is to own the accumulation boundary, which another setting owns already",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
