"""`cpu_offload_use_pin_memory` is read, and no longer used.

Its two companions `cpu_offload` and `cpu_offload_param` are turned into the blocks that replaced them. This one is
only named in a line of the log; memory is pinned as the blocks say, and with neither of them, as their default does:
always since DeepSpeed 0.19.5, never before.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, RemoveKey
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

_ZERO = "zero_optimization"
_KEY = "cpu_offload_use_pin_memory"

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {"device": "cpu"},
    "cpu_offload_use_pin_memory": false
  }
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="zero_optimization.cpu_offload_use_pin_memory",
                message="cpu_offload_use_pin_memory false is not used: pin_memory of offload_optimizer is true"
                " (the default)",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
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
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": false}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    zero = context.block(_ZERO)
    wanted = zero.get(_KEY)
    if wanted is None or support.optimizer_device(context.config) not in ("cpu", "nvme"):
        return
    block = context.block(f"{_ZERO}.offload_optimizer")
    pinned = block.get("pin_memory")
    if pinned is None or bool(pinned) == bool(wanted):
        return
    origin = context.line(_ZERO, "offload_optimizer", "pin_memory") if block.written("pin_memory") else "the default"
    yield Finding(
        at=(_ZERO, _KEY),
        message=f"{_KEY} {shown(wanted)} is not used: pin_memory of offload_optimizer is {shown(pinned)} ({origin})",
        help=f'write "pin_memory": {shown(wanted)} in the offload blocks',
        fix=Fix(f"remove {_KEY}", (RemoveKey((_ZERO, _KEY)),), is_safe=True),
    )


RULE = Rule(
    code="DSA552",
    name="ignored-pin-memory",
    summary="cpu_offload_use_pin_memory says otherwise than what is done",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
)
