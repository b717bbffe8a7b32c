"""The optimizer states are offloaded, and the optimizer is not made for the CPU.

The step of an offloaded optimizer runs on the CPU. DeepSpeed has Adam, Lion and Adagrad in vectorized code for that;
any other optimizer of the config, and Adam with `torch_adam`, runs torch's, which is several times slower, while the
accelerator waits. A script's own optimizer is refused for this reason; one that the config names is not.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.config.launch import Launch
from ds_accum.config.optimizers import resolve_optimizer
from ds_accum.lint.built_from_config import class_behind_the_type, optimizer_from_config
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.rule import Example, Report, Rule

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": true}},
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="optimizer.type",
                message='torch.optim.AdamW, which DeepSpeed builds for "AdamW" (line 4) with torch_adam, steps slowly'
                " on the CPU, where offload_optimizer (line 5) puts it",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    config, built = context.config, optimizer_from_config(context)
    if built is None or config.zero_stage in (0, None) or support.optimizer_device(config) not in ("cpu", "nvme"):
        return
    choice = resolve_optimizer(config)
    if choice is None or choice.module != "torch.optim":
        return
    deprecated = config.block("zero_optimization").get("cpu_offload")
    key = "cpu_offload" if deprecated else "offload_optimizer"
    yield Finding(
        at=("optimizer", "type"),
        message=f"{class_behind_the_type(context, choice)}, steps slowly on the CPU, where {key}"
        f" ({context.line('zero_optimization', key)}) puts it"
        if choice.kept_back or choice.name != context.block("optimizer").get("type")
        else f"{choice.full_name} steps slowly on the CPU, where {key} ({context.line('zero_optimization', key)})"
        " puts it",
        help="use Adam, AdamW, Lion or Adagrad without torch_adam, which have their own code for the CPU",
        depends_on=built.depends_on,
    )


RULE = Rule(
    code="DSA550",
    name="slow-offloaded-optimizer",
    summary="the optimizer is offloaded, and has no code of its own for the CPU",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.INFO,
    check=check,
    bad=BAD,
    good=GOOD,
)
