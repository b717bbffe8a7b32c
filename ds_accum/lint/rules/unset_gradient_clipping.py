"""`gradient_clipping` is not written, and what then holds depends on the DeepSpeed release.

Up to 0.19.2 gradients were not clipped unless the config asked for it. Since 0.19.3 they are clipped to norm 1.0
unless the config says 0. The same file trains differently before and after, without a word in the log, and a job that
is resumed after an upgrade changes in the middle. With the key written down, nothing depends on the release. Hugging
Face's Trainer hands its `max_grad_norm` on only where the file says "auto".
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.config.schema import format_version
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, SetValue
from ds_accum.lint.ignored_keys import Kind, ignored_keys
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

KEY = "gradient_clipping"

BAD = (
    Example(
        config='{"train_batch_size": 2, "optimizer": {"type": "SGD", "params": {"lr": 1.0}}}',
        reports=(
            Report(
                at="",
                message="gradient_clipping is not set, and DeepSpeed clips gradients to norm 1.0, its default since"
                " 0.19.3",
            ),
        ),
        fixed='{"train_batch_size": 2, "optimizer": {"type": "SGD", "params": {"lr": 1.0}}, "gradient_clipping": 1.0}',
    ),
    Example(
        config='{"train_batch_size": 8}',
        launch=Launch(world_size=1, deepspeed_version=(0, 19, 2)),
        reports=(
            Report(
                at="",
                message="gradient_clipping is not set, and DeepSpeed 0.19.2 does not clip gradients, as 0.19.3 and"
                " later ones do by default",
            ),
        ),
        deepspeed=None,
        fixed='{"train_batch_size": 8, "gradient_clipping": 0.0}',
    ),
    Example(
        config='{"train_batch_size": "auto"}',
        launch=Launch(world_size=1, framework="huggingface"),
        reports=(
            Report(
                at="",
                message="gradient_clipping is not set, and DeepSpeed clips gradients to norm 1.0, its default since"
                " 0.19.3, whatever max_grad_norm says",
            ),
        ),
        deepspeed=None,
        fixed='{"train_batch_size": "auto", "gradient_clipping": "auto"}',
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 2,
  "gradient_clipping": 0.0,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}}
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    framework = context.launch.framework
    if KEY in context.values or (KEY,) in context.embedded.filled_in:
        return
    if context.document.problems:
        return  # it may stand in what could not be read
    if framework == "accelerate" and context.embedded.base:
        return  # Accelerate builds the config from its own file, and decides
    if any(ignored.kind is Kind.CLIPPING for ignored in ignored_keys(context)):
        return  # that key is reported, with what holds in its place
    default = context.config.top.block.keys[KEY].default
    if default:
        holds = f"DeepSpeed clips gradients to norm {default}, its default since 0.19.3"
    else:
        holds = f"DeepSpeed {format_version(context.version)} does not clip gradients, as 0.19.3 and later ones do by"
        holds += " default"
    is_trainer = framework in ("huggingface", "accelerate")
    yield Finding(
        at=(),
        message=f"{KEY} is not set, and {holds}{', whatever max_grad_norm says' if is_trainer else ''}",
        help=f'write "{KEY}": "auto", and max_grad_norm decides'
        if is_trainer
        else f'write "{KEY}": {shown(default)} to keep what holds now, whatever the release',
        fix=Fix(title=f'set {KEY} to "auto"', changes=(SetValue((KEY,), "auto"),))
        if is_trainer
        else Fix(title=f"set {KEY} to {shown(default)}", changes=(SetValue((KEY,), default),), is_safe=True),
    )


RULE = Rule(
    code="DSA404",
    name="unset-gradient-clipping",
    summary="whether gradients are clipped is left to the DeepSpeed release",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.INFO,
    check=check,
    bad=BAD,
    good=GOOD,
    references=("https://github.com/deepspeedai/DeepSpeed/pull/8068",),
)
