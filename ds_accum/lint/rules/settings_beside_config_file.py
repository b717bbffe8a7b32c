"""An Accelerate YAML names a DeepSpeed config file, and gives settings of its own that belong in there.

With `deepspeed_config_file`, Accelerate takes everything from that file and won't start while the YAML gives one of
the settings that the file would have to overrule: the stage, accumulation, clipping, offload, the saving of weights,
and the mixed precision, `"no"` included. The message lists all the names that there are, and not the one that is too
many.
"""

from __future__ import annotations

from collections.abc import Iterator

from ds_accum.config.embedded import accelerate_settings
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, Proof, When
from ds_accum.lint.fix import Fix, RemoveKey
from ds_accum.lint.rule import Example, Report, Rule

_CONFIG = (
    '{{"compute_environment": "LOCAL_MACHINE", "distributed_type": "DEEPSPEED", "num_processes": 1,{}'
    ' "deepspeed_config": {{"deepspeed_config_file": "ds.json"{}}}}}'
)
_REFUSED = "Accelerate won't start with it beside deepspeed_config_file (line 1)"

BAD = (
    Example(
        config=_CONFIG.format("", ', "zero_stage": 2, "gradient_clipping": 1.0'),
        launch=Launch(),
        reports=(
            Report(
                at="deepspeed_config.zero_stage",
                message=f"zero_stage belongs in the DeepSpeed config file, and {_REFUSED}",
            ),
            Report(
                at="deepspeed_config.gradient_clipping",
                message=f"gradient_clipping belongs in the DeepSpeed config file, and {_REFUSED}",
            ),
        ),
        deepspeed=None,
        fixed='{"compute_environment": "LOCAL_MACHINE", "distributed_type": "DEEPSPEED", "num_processes": 1, '
        '"deepspeed_config": {"deepspeed_config_file": "ds.json"}}',
    ),
    Example(
        config=_CONFIG.format(' "mixed_precision": "bf16",', ""),
        launch=Launch(),
        reports=(
            Report(
                at="mixed_precision",
                message=f"mixed_precision belongs in the DeepSpeed config file, and {_REFUSED}, unless `accelerate"
                " launch` is given --mixed_precision",
            ),
        ),
        deepspeed=None,
        fixed='{"compute_environment": "LOCAL_MACHINE", "distributed_type": "DEEPSPEED", "num_processes": 1, '
        '"deepspeed_config": {"deepspeed_config_file": "ds.json"}}',
    ),
)

GOOD = (Example(config=_CONFIG.format("", ', "zero3_init_flag": true'), launch=Launch(), deepspeed=None),)

# `DeepSpeedPlugin._deepspeed_config_checks` of Accelerate.
_SETTINGS = (
    "gradient_accumulation_steps",
    "gradient_clipping",
    "zero_stage",
    "offload_optimizer_device",
    "offload_param_device",
    "offload_param_nvme_path",
    "zero3_save_16bit_model",
)


def check(context: LintContext) -> Iterator[Finding]:
    settings = accelerate_settings(context.document)
    if settings is None or not settings.get("deepspeed_config_file"):
        return
    for name in settings:
        if name in _SETTINGS:
            yield _finding(context, ("deepspeed_config", name))
    if context.document.value.get("mixed_precision") is not None:
        yield _finding(
            context, ("mixed_precision",), depends_on="unless `accelerate launch` is given --mixed_precision"
        )


def _finding(context: LintContext, at: tuple[str, ...], depends_on: str | None = None) -> Finding:
    file = context.document.nearest_span(("deepspeed_config", "deepspeed_config_file"))
    line = context.document.position(file.start).line
    return Finding(
        at=at,
        on_key=True,
        message=f"{at[-1]} belongs in the DeepSpeed config file, and Accelerate won't start with it beside"
        f" deepspeed_config_file (line {line})",
        help="remove it here, and set it there",
        depends_on=depends_on,
        fix=Fix(title=f"remove {at[-1]}", changes=(RemoveKey(at),), is_safe=False),
    )


RULE = Rule(
    code="DSA831",
    name="settings-beside-config-file",
    summary="an Accelerate YAML gives settings beside deepspeed_config_file",
    rationale=__doc__,
    when=When.START,
    proof=Proof.OTHER_READER,
    needs="document",
    check=check,
    bad=BAD,
    good=GOOD,
    noticed_by="Accelerate",
)
