"""Every rule's examples, given to the installed DeepSpeed, show what the rule claims: refused when it says, or not at all.

A bad example that the rule fixes is refused no more once it is fixed, as far as nothing else is wrong with it.

An error is shown for whatever the script may pass itself; a finding that depends on that is shown for one of the
answers. Launches that take more than two ranks are checked as loaded only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from agreement import describe, lint_bytes
from deepspeed_load import load_file
from deepspeed_start import ClientOptimizer, Trial, run_trials
from this_machine import why_only_here

from ds_accum.config.accelerators import ACCELERATOR_LIMITS
from ds_accum.config.launch import Launch
from ds_accum.lint.diagnostic import Proof, Severity, When
from ds_accum.lint.rule import Example, Rule
from ds_accum.lint.rules import RULES

# Where a launch does not say its world size, a claim is about all of them.
SOME_WORLD_SIZES = (1, 2, 3, 8)
MOST_RANKS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a rule says about one of its examples: DeepSpeed refuses it at `when`, or, with `refused` false, not then.

    `always` says that this holds whatever the script passes itself; else it does for something that the script may
    pass.
    """

    name: str
    config: str
    launch: Launch
    when: When
    refused: bool
    always: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """What DeepSpeed did in one of the launches that a claim is about: when it refused, None if it took a step.

    `unknown` is why this machine can't tell.
    """

    launch: str
    refused: When | None = None
    error: str = ""
    unknown: str | None = None


def claims_of(rules: Sequence[Rule]) -> Iterator[Claim]:
    """The claims that can be shown by running the installed DeepSpeed."""
    for rule in rules:
        if rule.proof is not Proof.RUN:
            continue
        for number, example in enumerate(rule.bad):
            if example.deepspeed == "config":
                claim = _claim_of_a_bad_example(rule, example, f"{rule.code}-bad-{number}")
                yield claim
                if example.fixed is not None and not _has_errors(example.fixed, example.launch):
                    yield replace(
                        claim,
                        name=f"{rule.code}-fixed-{number}",
                        config=example.fixed,
                        refused=False,
                        always=False,
                    )
        for number, example in enumerate(rule.good):
            if example.deepspeed == "config":
                yield Claim(
                    name=f"{rule.code}-good-{number}",
                    config=example.config,
                    launch=example.launch,
                    when=rule.when,
                    refused=False,
                    always=False,
                )


def _claim_of_a_bad_example(rule: Rule, example: Example, name: str) -> Claim:
    found = [item for item in lint_bytes(example.config.encode(), example.launch) if item.code == rule.code]
    assert found, f"{name} has no finding of its own rule"
    when = min((item.when for item in found), key=list(When).index)
    return Claim(
        name=name,
        config=example.config,
        launch=example.launch,
        when=when,
        refused=when is not When.NEVER,
        always=any(item.severity is Severity.ERROR and item.when is when for item in found),
    )


def _has_errors(config: str, launch: Launch) -> bool:
    """Whether something else is wrong, or may be for some of what the script may pass."""
    return any(item.severity is not Severity.INFO for item in lint_bytes(config.encode(), launch))


def problem_with(claim: Claim, reactions: Sequence[Reaction]) -> str | None:
    """Why the reactions do not show the claim; None if they do."""
    seen = [
        f"{item.launch}: {item.refused.value + ': ' + item.error if item.refused else 'not refused'}"
        for item in reactions
    ]
    report = "\n  ".join(["", *seen, claim.config])
    if claim.refused:
        as_claimed = [item.refused is claim.when for item in reactions]
        if all(as_claimed) if claim.always else any(as_claimed):
            return None
        return f"DeepSpeed should refuse this at {claim.when.value}{report}"
    latest = list(When).index(claim.when)
    if any(item.refused is None or list(When).index(item.refused) > latest for item in reactions):
        return None
    return f"DeepSpeed should not refuse this at or before {claim.when.value}{report}"


# --- what DeepSpeed does ----------------------------------------------------------------------------------------------


def react(claims: Sequence[Claim], folder: Path) -> dict[str, list[Reaction]]:
    """DeepSpeed's reactions in all launches that the claims are about, by name of the claim; real ranks in one go."""
    reactions: dict[str, list[Reaction]] = {claim.name: [] for claim in claims}
    trials: dict[str, tuple[Claim, Trial]] = {}
    for claim in claims:
        path = folder / f"{claim.name}.json"
        path.write_text(claim.config, "utf-8")
        refused_at_load = False
        can_be_started = claim.when is not When.LOAD and _ranks_of(claim.launch) is not None
        for world_size in (claim.launch.world_size,) if claim.launch.world_size else SOME_WORLD_SIZES:
            if world_size % claim.launch.model_parallel_size:
                continue
            launch = replace(claim.launch, world_size=world_size)
            verdict = load_file(path, launch)
            refused_at_load |= verdict.refused and verdict.when is When.LOAD
            # Without real ranks, only what shows already here.
            if claim.when is When.LOAD or (not can_be_started and (verdict.refused or not claim.refused)):
                reactions[claim.name].append(_reaction(claim, describe(launch), verdict.when, verdict.error))
        if can_be_started and not refused_at_load:
            trials |= {trial.name: (claim, trial) for trial in _trials_of(claim, path)}
        elif can_be_started:
            reactions[claim.name].append(_reaction(claim, describe(claim.launch), When.LOAD, "refused at load"))
    outcomes = run_trials(trial for _, trial in trials.values())
    for name, (claim, _) in trials.items():
        outcome = outcomes[name]
        when = When.START if outcome.refused_at_start else When.FIRST_STEP
        reactions[claim.name].append(_reaction(claim, name, when, outcome.error or None))
    return reactions


def _reaction(claim: Claim, launch: str, when: When, error: str | None) -> Reaction:
    if error is None:
        return Reaction(launch=launch)
    unknown = why_only_here(error, accelerator=claim.launch.accelerator)
    return Reaction(launch=launch, refused=when, error=error, unknown=unknown)


def _ranks_of(launch: Launch) -> int | None:
    """How many real ranks show a launch; None where they would be too many, or need an `mpu`."""
    ranks = launch.world_size or launch.pipeline_parallel_size
    return ranks if ranks <= MOST_RANKS and launch.model_parallel_size == launch.pipeline_parallel_size else None


# Nothing, an optimizer of either kind, a scheduler; together they show nothing more.
_WHAT_A_SCRIPT_MAY_PASS: tuple[tuple[ClientOptimizer | None, bool], ...] = (
    (None, False),
    ("torch", False),
    ("deepspeed", False),
    (None, True),
    ("deepspeed", True),
)


def _trials_of(claim: Claim, path: Path) -> Iterator[Trial]:
    """The launches of real ranks that a claim is about."""
    launch, ranks = claim.launch, _ranks_of(claim.launch)
    assert ranks is not None
    for optimizer, scheduler in _WHAT_A_SCRIPT_MAY_PASS:
        if launch.client_optimizer not in (None, optimizer is not None):
            continue
        if launch.client_scheduler not in (None, scheduler):
            continue
        passed = [f"{optimizer} optimizer"] * (optimizer is not None) + ["scheduler"] * scheduler
        yield Trial(
            name=f"{claim.name} on {ranks} rank(s), passing {' and '.join(passed) or 'nothing'}",
            config=str(path),
            ranks=ranks,
            pipeline_stages=launch.pipeline_parallel_size if launch.pipeline_parallel_size > 1 else 0,
            client_optimizer=optimizer,
            client_scheduler=scheduler,
            step=claim.when in (When.FIRST_STEP, When.NEVER),
        )


# --- the tests --------------------------------------------------------------------------------------------------------

CLAIMS = tuple(claims_of(RULES))

_SOUND = '{"train_batch_size": 8, "zero_optimization": {"stage": 1}, "optimizer": {"type": "AdamW"}}'
_REFUSED_AT_LOAD = '{"train_batch_size": 8, "zero_optimization": {"stage": 4}}'
_REFUSED_AT_START = '{"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"no_such_parameter": 1}}}'

# Claims that are false, run along with the others to see that this is noticed; and what is said about each.
_ON_ONE_RANK = Launch(world_size=1, client_optimizer=False)
FALSE_CLAIMS = {
    f"false: {config} is {'refused' if refused else 'fine'} at {when.value}": (
        Claim(name=f"false-{number}", config=config, launch=_ON_ONE_RANK, when=when, refused=refused, always=refused),
        f"DeepSpeed should {'refuse this at' if refused else 'not refuse this at or before'} {when.value}",
    )
    for number, (config, when, refused) in enumerate(
        (
            (_SOUND, When.LOAD, True),
            (_SOUND, When.START, True),
            (_SOUND, When.FIRST_STEP, True),
            (_REFUSED_AT_LOAD, When.START, True),
            (_REFUSED_AT_START, When.LOAD, True),
            (_REFUSED_AT_START, When.FIRST_STEP, True),
            (_REFUSED_AT_LOAD, When.LOAD, False),
            (_REFUSED_AT_START, When.START, False),
            (_REFUSED_AT_START, When.NEVER, False),
        )
    )
}


@pytest.fixture(scope="module")
def reactions(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[Reaction]]:
    """By name of the claim: the reactions that this machine can tell, all from one launch."""
    return react([*CLAIMS, *(claim for claim, _ in FALSE_CLAIMS.values())], tmp_path_factory.mktemp("examples"))


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_deepspeed_reacts_to_an_example_as_its_rule_says(claim: Claim, reactions: Mapping[str, list[Reaction]]) -> None:
    known = [item for item in reactions[claim.name] if item.unknown is None]
    if not known:
        reasons = {item.unknown for item in reactions[claim.name]} or {f"{describe(claim.launch)}: too many ranks"}
        pytest.skip("; ".join(sorted(filter(None, reasons))))
    assert problem_with(claim, known) is None, problem_with(claim, known)


@pytest.mark.parametrize("false_claim", FALSE_CLAIMS)
def test_a_false_claim_is_noticed(false_claim: str, reactions: Mapping[str, list[Reaction]]) -> None:
    claim, expected = FALSE_CLAIMS[false_claim]
    assert (problem_with(claim, reactions[claim.name]) or "").startswith(expected)


def test_what_an_accelerator_refuses_is_refused_in_the_words_of_the_table(
    reactions: Mapping[str, list[Reaction]],
) -> None:
    errors = [item.error for claim in CLAIMS if claim.launch.accelerator == "cpu" for item in reactions[claim.name]]
    certain = [limit for limit in ACCELERATOR_LIMITS if limit.unless is None]
    assert [limit for limit in certain if not any(limit.refusal in error for error in errors)] == []


def test_most_claims_are_shown_with_real_ranks_or_as_loaded(reactions: Mapping[str, list[Reaction]]) -> None:
    shown = [claim for claim in CLAIMS if any(item.unknown is None for item in reactions[claim.name])]
    assert len(shown) > 0.9 * len(CLAIMS)
