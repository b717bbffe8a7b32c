"""A clipping threshold stands under a name, or in a place, that DeepSpeed does not know.

The threshold is `gradient_clipping`, at the root of the config. `max_grad_norm`, `gradient_clip_val`, `clip_grad` and
the same key inside of `optimizer` are ignored like everything else there that DeepSpeed does not know, and its own
default holds in their place: norm 1.0 since 0.19.3, no clipping before. A run that asks for 0.5 clips at 1.0, and one
that asks for none with 0 clips as well.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix, MoveKey, RemoveKey, RenameKey
from ds_accum.lint.ignored_keys import IgnoredKey, Kind, ignored_keys
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.setting_words import origin
from ds_accum.lint.wording import dotted, shown

KEY = "gradient_clipping"

BAD = (
    Example(
        config="""{
  "train_batch_size": 2,
  "max_grad_norm": 0.01,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}}
}
""",
        reports=(
            Report(
                at="max_grad_norm",
                message="DeepSpeed ignores max_grad_norm 0.01 and clips gradients to norm 1.0 (the default)",
            ),
        ),
        fixed="""{
  "train_batch_size": 2,
  "gradient_clipping": 0.01,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}}
}
""",
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}, "gradient_clipping": 0.5}
}
""",
        reports=(
            Report(
                at="optimizer.gradient_clipping",
                message="DeepSpeed ignores optimizer.gradient_clipping 0.5 and clips gradients to norm 1 (line 3)",
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
    ),
    Example(
        config='{"train_batch_size": 8, "gradient_clip": 0.5}',
        launch=Launch(world_size=1, deepspeed_version=(0, 19, 2)),
        reports=(
            Report(
                at="gradient_clip",
                message="DeepSpeed ignores gradient_clip 0.5 and does not clip gradients (the default)",
            ),
        ),
        deepspeed=None,
        fixed='{"train_batch_size": 8, "gradient_clipping": 0.5}',
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 2,
  "gradient_clipping": 0.01,
  "optimizer": {"type": "SGD", "params": {"lr": 1.0}}
}
"""
    ),
    # Said twice, and both mean the same.
    Example(config='{"train_batch_size": 8, "gradient_clipping": 0.5, "max_grad_norm": 0.5}'),
)


def check(context: LintContext) -> Iterator[Finding]:
    if (KEY,) in context.embedded.filled_in:
        return  # Trainer's own argument decides
    in_force = context.values.get(KEY, context.config.top.block.keys[KEY].default)
    if not isinstance(in_force, int | float):
        return
    is_set = KEY in context.values
    for ignored in ignored_keys(context):
        if ignored.kind is not Kind.CLIPPING or (is_set and ignored.value == in_force):
            continue
        clips = f"clips gradients to norm {shown(in_force)}" if in_force > 0 else "does not clip gradients"
        yield Finding(
            at=ignored.path,
            on_key=True,
            message=f"DeepSpeed ignores {dotted(ignored.path)} {shown(ignored.value)} and {clips}"
            f" ({origin(context, KEY)})",
            help=f"write {KEY} at the root of the config",
            fix=_fix(ignored, is_set),
        )


def _fix(ignored: IgnoredKey, is_set: bool) -> Fix | None:
    if is_set:
        return Fix(title="remove it", changes=(RemoveKey(ignored.path),), is_safe=True)
    if not isinstance(ignored.value, int | float):
        return None
    if len(ignored.path) == 1:
        return Fix(title=f"rename it to {KEY}", changes=(RenameKey(ignored.path, KEY),))
    return Fix(title=f"move it to {KEY}", changes=(MoveKey(ignored.path, (KEY,)),))


RULE = Rule(
    code="DSA406",
    name="clipping-under-another-name",
    summary="a clipping threshold stands where DeepSpeed does not look for it",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    check=check,
    bad=BAD,
    good=GOOD,
)
