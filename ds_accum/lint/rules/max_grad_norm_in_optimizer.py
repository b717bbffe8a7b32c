"""`max_grad_norm` stands among the optimizer's parameters.

Gradients are clipped by the engine, with `gradient_clipping` at the root of the config. DeepSpeed warns about the other
key while the config loads, and then refuses to build the optimizer with it, whatever its value, 0 and a negative one
included. `gradient_clipping` itself defaults to 1.0 since 0.19.3, so a norm that is moved nowhere is not the same as
none.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.built_from_config import optimizer_from_config, params_of
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.fix import Fix
from ds_accum.lint.mends import moved, removed
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

KEY = "max_grad_norm"

BAD = (
    Example(
        config='{"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "max_grad_norm": 0.3}}}',
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="optimizer.params.max_grad_norm",
                message="DeepSpeed refuses max_grad_norm as a parameter of the optimizer, whatever its value",
            ),
        ),
        fixed='{"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},'
        ' "gradient_clipping": 0.3}',
    ),
    Example(
        config='{"train_batch_size": 8, "optimizer": {"type": "Lamb", "params": {"max_grad_norm": 0}}}',
        reports=(
            Report(
                at="optimizer.params.max_grad_norm",
                message="DeepSpeed refuses max_grad_norm as a parameter of the optimizer, whatever its value, unless"
                " the script passes its own optimizer",
            ),
        ),
        fixed='{"train_batch_size": 8, "optimizer": {"type": "Lamb", "params": {}}, "gradient_clipping": 0}',
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 0.3,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    built, params = optimizer_from_config(context), params_of(context.block("optimizer"))
    # What is no number can't even be compared with 0, and fails while the config loads.
    if built is None or not isinstance(params.get(KEY), int | float):
        return
    yield Finding(
        at=("optimizer", "params", KEY),
        on_key=True,
        message=f"DeepSpeed refuses {KEY} as a parameter of the optimizer, whatever its value",
        help=f'remove it, and set "gradient_clipping": {shown(params[KEY])} at the root of the config',
        depends_on=built.depends_on,
        fix=_fix(context, params[KEY], is_certain=built.depends_on is None),
    )


def _fix(context: LintContext, norm: float, *, is_certain: bool) -> Fix | None:
    """Where the script's own optimizer is used after all, the norm means nothing as it stands, and clips once moved."""
    at, clipping = ("optimizer", "params", KEY), context.values.get("gradient_clipping")
    if "gradient_clipping" not in context.values and norm >= 0:
        return moved(at, ("gradient_clipping",), is_safe=is_certain)
    return removed(at, is_safe=clipping == norm)


RULE = Rule(
    code="DSA504",
    name="max-grad-norm-in-optimizer",
    summary="max_grad_norm stands among the optimizer's parameters",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
    references=("https://www.deepspeed.ai/docs/config-json/#gradient-clipping",),
)
