"""`max_grad_norm` among the optimizer's parameters.

Clipping belongs to the engine: `gradient_clipping` at the root of the config. DeepSpeed refuses `max_grad_norm` here,
also when it is 0, and tells to use the other key. It only warned up to 0.19.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import UNLESS_THE_SCRIPT_PASSES_ONE
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config='{"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "max_grad_norm": 0.5}}}',
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="optimizer.params.max_grad_norm",
                message="optimizer.params.max_grad_norm is 0.5, but DeepSpeed clips by gradient_clipping at the root",
            ),
        ),
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 0.5,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    optimizer = context.block("optimizer")
    params = optimizer.get("params")
    if (
        context.launch.client_optimizer
        or context.version < (0, 19, 6)
        or not isinstance(optimizer.get("type"), str)
        or not isinstance(params, Mapping)
        or "max_grad_norm" not in params
    ):
        return
    yield Finding(
        at=("optimizer", "params", "max_grad_norm"),
        on_key=True,
        message=f"optimizer.params.max_grad_norm is {shown(params['max_grad_norm'])}, but DeepSpeed clips by"
        " gradient_clipping at the root",
        help='remove it, and write "gradient_clipping" at the root of the config',
        depends_on=None if context.builds_optimizer_from_config else UNLESS_THE_SCRIPT_PASSES_ONE,
    )


RULE = Rule(
    code="DSA504",
    name="max-grad-norm-in-optimizer",
    summary="max_grad_norm stands among the optimizer's parameters",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
