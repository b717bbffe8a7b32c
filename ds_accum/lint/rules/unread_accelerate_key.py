"""A key under `deepspeed_config` of an Accelerate YAML that Accelerate does not read.

The block holds names of Accelerate's own, such as `zero_stage`, and not a DeepSpeed config. What is copied in from one,
`zero_optimization` with all it holds, or misspelt, is dropped without a word: `accelerate launch` turns each key into
an option of its command line and never looks at those that it does not know. A whole DeepSpeed config has its place in
a file of its own, named by `deepspeed_config_file`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.embedded import ACCELERATE_KEYS, accelerate_settings
from ds_accum.config.launch import Launch
from ds_accum.config.spelling import closest_word
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, Severity, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

_CONFIG = (
    '{{"compute_environment": "LOCAL_MACHINE", "distributed_type": "DEEPSPEED", "num_processes": 1,'
    ' "deepspeed_config": {{"zero_stage": 2, {}}}}}'
)

BAD = (
    Example(
        config=_CONFIG.format('"zero_optimization": {"overlap_comm": true}, "gradient_cliping": 1.0'),
        launch=Launch(),
        reports=(
            Report(
                at="deepspeed_config.zero_optimization",
                message='Accelerate reads no "zero_optimization" here, so DeepSpeed does not get it',
            ),
            Report(
                at="deepspeed_config.gradient_cliping",
                message='Accelerate reads no "gradient_cliping" here, so DeepSpeed does not get it',
            ),
        ),
        deepspeed=None,
    ),
)

GOOD = (
    Example(
        config=_CONFIG.format('"gradient_clipping": 1.0, "deepspeed_multinode_launcher": "standard"'),
        launch=Launch(),
        deepspeed=None,
    ),
)


def check(context: LintContext) -> Iterator[Finding]:
    settings = accelerate_settings(context.document)
    if settings is None:
        return
    known_to_deepspeed = context.config.top.block.keys.keys() | context.config.schema.blocks.keys()
    for name, value in settings.items():
        if name in ACCELERATE_KEYS or not isinstance(name, str):
            continue
        meant = closest_word(name, ACCELERATE_KEYS)
        if meant is None and name not in known_to_deepspeed:
            continue  # any other option of `accelerate launch`, or a note of the author's
        if value == "auto":
            continue  # that is what it is without the key
        yield Finding(
            at=("deepspeed_config", name),
            on_key=True,
            message=f"Accelerate reads no {shown(name)} here, so DeepSpeed does not get it",
            help="move the DeepSpeed config to a file, and name that with deepspeed_config_file"
            if name in known_to_deepspeed
            else f'did you mean "{meant}"?',
        )


RULE = Rule(
    code="DSA832",
    name="unread-accelerate-key",
    summary="a key under deepspeed_config of an Accelerate YAML that is not read",
    rationale=__doc__,
    when=When.NEVER,
    severity=Severity.WARNING,
    proof=Proof.OTHER_READER,
    needs="document",
    check=check,
    bad=BAD,
    good=GOOD,
)
