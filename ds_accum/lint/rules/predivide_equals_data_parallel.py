"""ZeRO-3 divides gradients by `gradient_predivide_factor` and does not multiply them back.

The factor is to be divided by before the reduction and multiplied by after it, on top of the mean over the ranks.
ZeRO-3 without reduce-scatter skips the second half where the factor equals the number of ranks: gradients come out that
many times too small, at every step. Any other factor is right, and so are ZeRO-1 and ZeRO-2.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.config.launch import Launch
from ds_accum.lint.built_from_config import any_optimizer
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.fix import Fix, RemoveKey
from ds_accum.lint.launch_facts import reducing_ranks
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import zero_stage
from ds_accum.lint.wording import is_number, number, shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 0.0,
  "gradient_predivide_factor": 2.0,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}},
  "zero_allow_untested_optimizer": true,
  "zero_optimization": {"stage": 3, "reduce_scatter": false}
}
""",
        launch=Launch(world_size=2),
        reports=(
            Report(
                at="gradient_predivide_factor",
                message="gradient_predivide_factor 2 equals the 2 ranks that ZeRO stage 3 (line 7) reduces over, and"
                " gradients come out 2 times too small",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "gradient_clipping": 0.0,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}},
  "zero_allow_untested_optimizer": true,
  "zero_optimization": {"stage": 3, "reduce_scatter": false}
}
""",
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 0.0,
  "gradient_predivide_factor": 4.0,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}},
  "zero_allow_untested_optimizer": true,
  "zero_optimization": {"stage": 3, "reduce_scatter": false}
}
""",
        launch=Launch(world_size=2),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    config = context.config
    factor = config.top.get("gradient_predivide_factor")
    if config.zero_stage != 3 or not support.divides_before_reducing(config) or context.engine == "ds-accum":
        return
    if not is_number(factor) or factor < 2 or factor != int(factor):
        return
    ranks, optimizer = reducing_ranks(context), any_optimizer(context)
    if optimizer is None or ranks not in (None, factor):
        return
    conditions = [] if ranks is not None else [f"if ZeRO reduces over {number(factor)} ranks"]
    if optimizer.depends_on is not None:
        conditions.append(optimizer.depends_on)
    message = (
        f"gradient_predivide_factor {shown(factor)} equals the {ranks} ranks that {zero_stage(context)} reduces over,"
        f" and gradients come out {ranks} times too small"
        if ranks is not None
        else f"gradient_predivide_factor {shown(factor)} makes gradients {number(factor)} times too small at"
        f" {zero_stage(context)}"
    )
    yield Finding(
        at=("gradient_predivide_factor",),
        message=message,
        help="remove it, or use another factor",
        depends_on=", and ".join(conditions) or None,
        fix=Fix(title="remove gradient_predivide_factor", changes=(RemoveKey(("gradient_predivide_factor",)),)),
    )


RULE = Rule(
    code="DSA220",
    name="predivide-equals-data-parallel",
    summary="gradients are divided by gradient_predivide_factor at ZeRO stage 3, and not multiplied back",
    rationale=__doc__,
    when=When.NEVER,
    check=check,
    bad=BAD,
    good=GOOD,
)
