"""`scheduler.params` holds a key that the scheduler does not take, or lacks one that it needs.

The parameters become keyword arguments: an unknown one is a TypeError, and so is a missing `total_num_steps` of
WarmupDecayLR and WarmupCosineLR. `params` itself may not be left out, even if it is empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ds_accum.config.launch import Launch
from ds_accum.config.optimizers import scheduler_signature
from ds_accum.lint.context import LintContext
from ds_accum.lint.diagnostic import Finding, When
from ds_accum.lint.rule import Example, Report, Rule
from ds_accum.lint.scheduler_launch import depends_on, is_never_built
from ds_accum.lint.wording import did_you_mean, what

_LAUNCH = Launch(world_size=1, client_optimizer=False, client_scheduler=False)

_CONFIG = """{
  "train_batch_size": 8,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
  "scheduler": {"type": "WarmupDecayLR"%s}
}
"""

BAD = (
    Example(
        config=_CONFIG % ', "params": {"warmup_steps": 10, "total_num_steps": 100}',
        launch=_LAUNCH,
        reports=(
            Report(at="scheduler.params.warmup_steps", message='WarmupDecayLR takes no parameter "warmup_steps"'),
        ),
    ),
    Example(
        config=_CONFIG % ', "params": {"warmup_num_steps": 10}',
        launch=_LAUNCH,
        reports=(Report(at="scheduler.params", message="WarmupDecayLR needs total_num_steps"),),
    ),
    Example(
        config=_CONFIG % "",
        launch=_LAUNCH,
        reports=(
            Report(
                at="scheduler", message="scheduler.params is missing, which DeepSpeed takes for a list of arguments"
            ),
        ),
    ),
)

GOOD = (Example(config=_CONFIG % ', "params": {"warmup_num_steps": 10, "total_num_steps": 100}', launch=_LAUNCH),)


def check(context: LintContext) -> Iterator[Finding]:
    scheduler = context.block("scheduler")
    name = scheduler.get("type")
    signature = scheduler_signature(name) if isinstance(name, str) else None
    if signature is None or is_never_built(context):
        return
    unknown = depends_on(context)
    params = scheduler.get("params")
    if not isinstance(params, Mapping):
        missing = "params" not in scheduler.raw
        message = "is missing, which DeepSpeed takes for a list of arguments"
        yield Finding(
            at=("scheduler",) if missing else ("scheduler", "params"),
            message=f"scheduler.params {message if missing else f'must be an object, but is {what(params)}'}",
            help='write "params": { ... }',
            depends_on=unknown,
        )
        return
    for key in params:
        if key not in signature.parameters:
            meant = did_you_mean(key, signature.parameters)
            yield Finding(
                at=("scheduler", "params", key),
                on_key=True,
                message=f'{name} takes no parameter "{key}"',
                help=f'did you mean "{meant}"?' if meant else "remove it",
                depends_on=unknown,
            )
    lacking = sorted(key for key in signature.required if not _is_given(context, params, key))
    if lacking:
        yield Finding(
            at=("scheduler", "params"),
            on_key=True,
            message=f"{name} needs {' and '.join(lacking)}",
            help="add it; schedulers count optimizer steps, not micro-batches",
            depends_on=unknown,
        )


def _is_given(context: LintContext, params: Mapping[str, object], key: str) -> bool:
    return key in params or ("scheduler", "params", key) in context.embedded.filled_in


RULE = Rule(
    code="DSA511",
    name="wrong-scheduler-parameters",
    summary="scheduler.params holds an unknown key, or lacks one that the scheduler needs",
    rationale=__doc__,
    when=When.START,
    check=check,
    bad=BAD,
    good=GOOD,
)
