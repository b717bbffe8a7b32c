"""An Accelerate YAML names a DeepSpeed config that is not there.

`accelerate launch` looks for `deepspeed_config_file` from the folder where it is started, not beside the YAML, and a
YAML that was copied to another project keeps naming the file of the old one. What is not found is taken for a config in
base64, so that the launch ends with "Expected a string path to an existing deepspeed config".

The file is looked for beside the YAML and in each folder above it up to the project's root; one that is found is linted
too, with the world size that the YAML launches. Outside the project nothing is opened.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.launch import Launch
from ds_accum.config.references import Reference
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, Severity, When
from ds_accum.lint.origin import Origin
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.wording import shown

_KEY = ("deepspeed_config", "deepspeed_config_file")

# YAML, as every JSON text is.
_CONFIG = '{{"distributed_type": "DEEPSPEED", "deepspeed_config": {{"deepspeed_config_file": "{}"}}}}'

BAD = (
    Example(
        config=_CONFIG.format("ds_zero3.json"),
        launch=Launch(),
        origin=Origin(reference=Reference(name="ds_zero3.json")),
        reports=(
            Report(
                at="deepspeed_config.deepspeed_config_file",
                message='"ds_zero3.json" is neither beside this file nor in a folder of the project above it',
            ),
        ),
        deepspeed=None,
    ),
    Example(
        config=_CONFIG.format("/shared/ds_zero3.json"),
        launch=Launch(),
        origin=Origin(reference=Reference(name="/shared/ds_zero3.json", is_outside=True)),
        reports=(
            Report(
                at="deepspeed_config.deepspeed_config_file",
                message='"/shared/ds_zero3.json" is outside the project of this file, so it was not looked at',
            ),
        ),
        deepspeed=None,
    ),
)

GOOD = (Example(config=_CONFIG.format("ds_zero3.json"), launch=Launch(), deepspeed=None),)


def check(context: LintContext) -> Iterator[Finding]:
    reference = context.origin.reference
    if reference is None or reference.path is not None:
        return
    if reference.is_outside:
        yield Finding(
            at=_KEY,
            message=f"{shown(reference.name)} is outside the project of this file, so it was not looked at",
            help="lint it by naming it",
            severity=Severity.INFO,
            when=When.NEVER,
        )
        return
    yield Finding(
        at=_KEY,
        message=f"{shown(reference.name)} is neither beside this file nor in a folder of the project above it",
        help="write the path as it is seen from the folder where `accelerate launch` is started",
    )


RULE = Rule(
    code="DSA802",
    name="missing-config-file",
    summary="an Accelerate YAML names a DeepSpeed config that is not there",
    rationale=__doc__,
    when=When.LOAD,
    severity=Severity.WARNING,
    proof=Proof.READ,
    needs="document",
    check=check,
    bad=BAD,
    good=GOOD,
    references=("https://huggingface.co/docs/accelerate/usage_guides/deepspeed#deepspeed-config-file",),
)
