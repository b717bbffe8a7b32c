"""What a rule says of a mistake that DeepSpeed does not report is seen when it trains, and not without the mistake.

The demonstrations are in `silent/`, a list for each topic. Each is trained with both configs on real ranks, all of them in
one launch; the linter must report the bad config with the demonstration's code, and not the good one.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import silent
from agreement import lint_bytes
from deepspeed_start import Outcome, Trial, run_trials
from demonstration import Demonstration
from this_machine import why_only_here

from ds_accum.lint.diagnostic import Proof, When
from ds_accum.lint.rule import Example, Rule
from ds_accum.lint.rules import RULES

RULE_OF = {rule.code: rule for rule in RULES}
DEMONSTRATIONS: tuple[Demonstration, ...] = tuple(
    demonstration
    for module in sorted(pkgutil.iter_modules(silent.__path__), key=lambda module: module.name)
    for demonstration in importlib.import_module(f"silent.{module.name}").DEMONSTRATIONS
)
SIDES = ("bad", "good")


def name_of(demonstration: Demonstration) -> str:
    return f"{demonstration.code}: {demonstration.says}"


def trial_name(demonstration: Demonstration, side: str) -> str:
    return f"{name_of(demonstration)}, {side}"


def example_of(demonstration: Demonstration, side: str) -> Example:
    """The config of a side, with the launch that it is trained as."""
    rule = RULE_OF[demonstration.code]
    given = getattr(demonstration, side)
    example = getattr(rule, side)[0] if given is None else Example(config=given, launch=rule.bad[0].launch)
    ranks = demonstration.ranks or example.launch.world_size or 1
    launch = replace(
        example.launch,
        world_size=ranks,
        client_optimizer=demonstration.client_optimizer is not None,
        client_scheduler=demonstration.client_scheduler,
        pipeline_parallel_size=max(demonstration.pipeline_stages, 1),
    )
    return replace(example, launch=launch)


def trials_of(demonstration: Demonstration, folder: Path) -> Iterator[Trial]:
    for side in SIDES:
        example = example_of(demonstration, side)
        path = folder / f"{trial_name(demonstration, side).replace('/', ' ')[:200]}.json"
        path.write_text(example.config, "utf-8")
        yield Trial(
            name=trial_name(demonstration, side),
            config=str(path),
            ranks=example.launch.world_size or 1,
            pipeline_stages=demonstration.pipeline_stages,
            client_optimizer=demonstration.client_optimizer,
            client_scheduler=demonstration.client_scheduler,
            step=True,
            steps=demonstration.steps,
            measure=demonstration.pipeline_stages == 0,
            look=demonstration.look,
        )


def problems_with(demonstration: Demonstration, outcomes: dict[str, Outcome]) -> Iterator[str]:
    for side in SIDES:
        outcome = outcomes[trial_name(demonstration, side)]
        if outcome.failed or outcome.hung:
            yield f"with the {side} config it fails: {outcome.error}\n{outcome.log}"
        elif demonstration.shows(outcome.seen) is not (side == "bad"):
            seen = "nothing is seen with the bad config" if side == "bad" else "it is seen with the good config too"
            yield f"{seen}: {json.dumps(outcome.seen, indent=2)}"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    folder = tmp_path_factory.mktemp("silent")
    return run_trials(trial for item in DEMONSTRATIONS for trial in trials_of(item, folder))


@pytest.mark.parametrize("demonstration", DEMONSTRATIONS, ids=name_of)
def test_the_mistake_is_seen_in_training_and_not_without_it(
    demonstration: Demonstration, outcomes: dict[str, Outcome]
) -> None:
    for side in SIDES:
        unknown = why_only_here(outcomes[trial_name(demonstration, side)].error)
        if unknown is not None:
            pytest.skip(unknown)
    found = list(problems_with(demonstration, outcomes))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("demonstration", DEMONSTRATIONS, ids=name_of)
def test_the_linter_reports_the_config_that_shows_the_mistake_and_not_the_other(demonstration: Demonstration) -> None:
    for side in SIDES:
        example = example_of(demonstration, side)
        codes = {item.code for item in lint_bytes(example.config.encode(), example.launch)}
        assert (demonstration.code in codes) is (side == "bad"), f"{side}: {sorted(codes)}"


def test_every_rule_about_a_silent_mistake_that_running_can_show_is_demonstrated() -> None:
    shown = {demonstration.code for demonstration in DEMONSTRATIONS}
    assert {rule.code for rule in RULES if _is_silent(rule)} - shown == set()


def test_a_demonstration_that_shows_nothing_is_noticed(tmp_path: Path) -> None:
    config = '{"train_batch_size": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}'
    code = RULES[0].code
    never = Demonstration(code=code, says="never", shows=lambda seen: False, bad=config, good=config, ranks=1)
    always = replace(never, says="always", shows=lambda seen: True)
    outcomes = run_trials(trial for item in (never, always) for trial in trials_of(item, tmp_path))
    assert [text.partition(":")[0] for text in problems_with(never, outcomes)] == [
        "nothing is seen with the bad config"
    ]
    assert [text.partition(":")[0] for text in problems_with(always, outcomes)] == [
        "it is seen with the good config too"
    ]


def test_what_is_measured_of_a_plain_step_is_the_gradient(tmp_path: Path) -> None:
    """SGD at a learning rate of 1 without clipping: the update is minus the true gradient, on every stage."""
    trials = [
        Trial(
            name=f"stage {stage}",
            config={
                "train_micro_batch_size_per_gpu": 2,
                "gradient_accumulation_steps": 2,
                "gradient_clipping": 0.0,
                "zero_allow_untested_optimizer": True,
                "zero_optimization": {"stage": stage},
                "optimizer": {"type": "SGD", "params": {"lr": 1.0}},
            },
            ranks=2,
            step=True,
            steps=2,
            measure=True,
            look={"stage": "engine.zero_optimization_stage()"},
        )
        for stage in (0, 1, 2, 3)
    ]
    for stage, outcome in enumerate(run_trials(trials).values()):
        assert outcome.error == ""
        assert outcome.seen["stage"] == stage
        first, second = outcome.seen["steps"]
        assert first["ratio"] == pytest.approx(1.0, abs=1e-5)
        assert first["error"] < 1e-5
        assert second["lr"] == 1.0


def _is_silent(rule: Rule) -> bool:
    return rule.proof is Proof.RUN and rule.when is When.NEVER
