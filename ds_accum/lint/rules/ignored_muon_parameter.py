"""`optimizer.params` holds a key that Muon drops.

Every other optimizer is handed all of its parameters, and refuses those that it does not know. For Muon DeepSpeed
picks out what it knows, half for the matrices and half for the Adam of the rest, and the others are lost without a
word: `muon_learning_rate` leaves the matrices at their default of 0.02.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.config.optimizers import MUON, resolve_optimizer
from ds_accum.config.spelling import closest_word
from ds_accum.lint.built_from_config import optimizer_from_config, params_of
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, RenameKey
from ds_accum.lint.rule import Example, Report, Rule

KNOWN = (
    "lr",
    "muon_lr",
    "adam_lr",
    "momentum",
    "weight_decay",
    "betas",
    "eps",
    "ns_method",
    "per_head_muon",
    "adam_w_mode",
    "torch_adam",
    "foreach",
    "fp32_optimizer_states",
    "max_grad_norm",
)
"""What is read somewhere; max_grad_norm is refused, which has a rule of its own."""

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "Muon", "params": {"adam_lr": 1e-4, "muon_rl": 0.1}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="optimizer.params.muon_rl",
                message="Muon (line 4) knows no parameter muon_rl, and DeepSpeed drops it without a word",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "Muon", "params": {"adam_lr": 1e-4, "muon_lr": 0.1}}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "Muon", "params": {"adam_lr": 1e-4, "muon_lr": 0.1}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    built = optimizer_from_config(context)
    if built is None:
        return
    choice = resolve_optimizer(context.config)
    if choice is None or choice.name != MUON:
        return
    params = params_of(context.block("optimizer"))
    for key in params:
        if not isinstance(key, str) or key in KNOWN:
            continue
        meant = closest_word(key, (name for name in KNOWN if name not in params))
        at = ("optimizer", "params", key)
        yield Finding(
            at=at,
            on_key=True,
            message=f"Muon ({context.line('optimizer', 'type')}) knows no parameter {key}, and DeepSpeed drops it"
            " without a word",
            help=f'did you mean "{meant}"?' if meant else "remove it",
            depends_on=built.depends_on,
            fix=Fix(f'call it "{meant}"', (RenameKey(at, meant),)) if meant else None,
        )


RULE = Rule(
    code="DSA535",
    name="ignored-muon-parameter",
    summary="Muon drops a parameter that it does not know",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
)
