"""The config names an optimizer that DeepSpeed can't build.

DeepSpeed knows a handful of names by itself, in any case (`Adam`, `adamw`, `LAMB`); every other one it looks up in
`torch.optim`, where case counts: `SGD` is there, `sgd` is not. The names that other tools use for the same optimizers
(`adamw_torch`, `FusedAdam`, `paged_adamw_8bit`) are in neither place. A name that does stand in `torch.optim` but is no
optimizer, such as the module `lr_scheduler`, passes the first check and fails when it is called.

The 1-bit optimizers were dropped with 0.19.7.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ds_accum.config.launch import Launch
from ds_accum.config.optimizers import named_optimizers, optimizer_removed_in, other_names, torch_optimizers
from ds_accum.config.schema import format_version
from ds_accum.config.spelling import closest_word
from ds_accum.lint.built_from_config import optimizer_from_config
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Severity, When
from ds_accum.lint.fix import Fix
from ds_accum.lint.mends import replaced
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "adamw_torch", "params": {"lr": 1e-4}}
}
""",
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="optimizer.type",
                message='DeepSpeed knows no optimizer "adamw_torch", and torch.optim has none of that name',
            ),
        ),
        fixed="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}
}
""",
    ),
    Example(
        config='{"train_batch_size": 8, "optimizer": {"type": "OneBitAdam", "params": {"lr": 1e-4}}}',
        reports=(
            Report(
                at="optimizer.type",
                message='DeepSpeed 0.19.7 removed the optimizer "OneBitAdam", unless the script passes its'
                " own optimizer",
            ),
        ),
    ),
    Example(
        config='{"train_batch_size": 8, "optimizer": {"type": "lr_scheduler"}}',
        launch=Launch(world_size=1, client_optimizer=False),
        reports=(
            Report(
                at="optimizer.type",
                message='"lr_scheduler" is no optimizer, though torch.optim has something of that name',
            ),
        ),
    ),
)

GOOD = (
    Example(
        config='{"train_batch_size": 8, "optimizer": {"type": "ADAMW", "params": {"lr": 1e-4}}}',
        launch=Launch(world_size=1, client_optimizer=False),
    ),
    Example(
        config='{"train_batch_size": 8, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}',
        launch=Launch(world_size=1, client_optimizer=False),
    ),
)

# DeepSpeed's own names as its documentation spells them; it takes them in any case.
_SPELLING: Mapping[str, str] = {
    "adam": "Adam",
    "adamw": "AdamW",
    "adagrad": "Adagrad",
    "lamb": "Lamb",
    "lion": "Lion",
    "muon": "Muon",
    "muadam": "MuAdam",
    "muadamw": "MuAdamW",
    "musgd": "MuSGD",
}

_NAMES_OF_GPT_NEOX = frozenset({"cpu_adam", "cpu_torch_adam", "sm3", "madgrad_wd"})

# What other tools add to a name to say who implements it, or in how many bits it keeps its states.
_ADDITIONS = r"deepspeed|fused|paged|torch|apex|anyprecision|npu|xla|hf|bnb|cpu|ds|8-?bit|32-?bit|4-?bit|[_\-. ]"


def check(context: LintContext) -> Iterator[Finding]:
    name, built = context.block("optimizer").get("type"), optimizer_from_config(context)
    if not isinstance(name, str) or built is None:
        return
    if name.lower() in named_optimizers(context.version) or name in torch_optimizers():
        return
    if context.launch.client_optimizer is None and _is_built_by_gpt_neox(context, name):
        return
    message, help_ = _wrong_name(context, name)
    # What can be called may even return something, with the right parameters.
    can_be_called = name.startswith("__") or other_names("optimizers").get(name) == "callable"
    yield Finding(
        at=("optimizer", "type"),
        message=message,
        help=help_,
        depends_on=built.depends_on,
        severity=Severity.WARNING if can_be_called else None,
        fix=_fix(context, name),
    )


def _is_built_by_gpt_neox(context: LintContext, name: str) -> bool:
    """GPT-NeoX reads the block itself, and passes what it builds (`get_optimizer` in its training.py)."""
    return context.embedded.framework == "gpt-neox" and name.lower() in _NAMES_OF_GPT_NEOX


def _wrong_name(context: LintContext, name: str) -> tuple[str, str]:
    removed_in = optimizer_removed_in(name, context.version)
    if removed_in is not None:
        return f"DeepSpeed {removed_in} removed the optimizer {shown(name)}", "use Adam, AdamW or Lamb"
    meant = _meant(context, name)
    help_ = f"did you mean {shown(meant)}?" if meant else "use one that DeepSpeed or torch.optim has"
    if name.startswith("__") or name in other_names("optimizers"):
        return f"{shown(name)} is no optimizer, though torch.optim has something of that name", help_
    release = "DeepSpeed"
    if name.lower() in _SPELLING:
        release = f"DeepSpeed {format_version(context.version)}"
    return f"{release} knows no optimizer {shown(name)}, and torch.optim has none of that name", help_


def _fix(context: LintContext, name: str) -> Fix | None:
    meant = None if optimizer_removed_in(name, context.version) is not None else _meant(context, name)
    if meant is None:
        return None
    # The same name, but for how it is spelt and who implements it; anything else is a guess.
    is_same = re.sub(_ADDITIONS, "", name.lower()) == meant.lower()
    return replaced(("optimizer", "type"), meant, is_safe=is_same)


def _meant(context: LintContext, name: str) -> str | None:
    known = {spelling.lower(): spelling for spelling in torch_optimizers() if spelling != "Optimizer"}
    known |= {word: _SPELLING[word] for word in named_optimizers(context.version) if word in _SPELLING}
    bare = re.sub(_ADDITIONS, "", name.lower())
    return known.get(bare) or closest_word(name, known.values())


RULE = Rule(
    code="DSA501",
    name="unknown-optimizer",
    summary="the config names an optimizer that DeepSpeed can't build",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
    references=("https://www.deepspeed.ai/docs/config-json/#optimizer-parameters",),
)
