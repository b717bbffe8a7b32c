"""The config asks for something that ds-accum's own engine refuses to start with.

DeepSpeed runs these; the token-weighted engine can't promise exact gradients with them and says so at `initialize`,
from the same table that this rule reads. It applies to launches with that engine only: `--engine ds-accum`, or a config
with a `ds_accum` block that says more than what the linter should do.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config import support
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import dotted

BAD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "compile": {"deepcompile": true},
  "ds_accum": {"normalization": "token"}
}
""",
        reports=(
            Report(
                at="compile.deepcompile",
                message="compile.deepcompile is refused by ds-accum's engine, because its compiled graph reduces"
                " gradients by itself, where no factor of the engine's reaches",
            ),
        ),
        deepspeed=None,
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "torch_autocast": {"enabled": true, "dtype": "float16"}
}
""",
        launch=Launch(world_size=1, engine="ds-accum"),
        reports=(
            Report(
                at="torch_autocast.dtype",
                message="torch_autocast.dtype is refused by ds-accum's engine, because torch's GradScaler then scales"
                " the loss, and the engine's own weight would replace that scale",
            ),
        ),
        deepspeed=None,
    ),
)

GOOD = (
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "torch_autocast": {"enabled": true, "dtype": "bfloat16"},
  "ds_accum": {"normalization": "token"}
}
"""
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "compile": {"deepcompile": true}
}
"""
    ),
    Example(
        config="""{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "compile": {"deepcompile": true},
  "ds_accum": {"lint": {"world_size": 1}}
}
"""
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    if context.engine != "ds-accum":
        return
    for refusal in support.engine_refusals(context.config):
        yield Finding(
            at=refusal.path,
            message=f"{dotted(refusal.path)} is refused by ds-accum's engine, because {refusal.reason}",
            help=refusal.remedy,
        )


RULE = Rule(
    code="DSA250",
    name="unsupported-by-the-engine",
    summary="the config asks for something that ds-accum's engine refuses",
    rationale=__doc__,
    when=When.START,
    check=check,
    proof=Proof.OTHER_READER,
    bad=BAD,
    good=GOOD,
    noticed_by="ds_accum.initialize",
)
