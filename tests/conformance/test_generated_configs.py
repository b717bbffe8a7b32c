"""The linter and DeepSpeed say the same about configs that nobody wrote, thousands of new ones in every run.

DS_ACCUM_GENERATED is how many are loaded (5,000; one in 25 of that is started too), DS_ACCUM_SEED the first seed (from
the clock, and printed at the end). A seed that fails is reported with the smallest config that still fails; README.md
says how to look at it again.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import hjson
import pytest
from agreement import certain, describe_diagnostic, disagreement_on_running, lint_bytes
from compare_generated import compare, encoded
from deepspeed_start import ClientOptimizer, Trial, run_trials
from generated import Case, generate, generate_with
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reduction import reduce
from workers import first_seed, run_seeds

from ds_accum.config.document import read_bytes
from ds_accum.config.launch import Launch
from ds_accum.config.schema import newest_version, schema_for
from ds_accum.lint.diagnostic import Diagnostic, When
from ds_accum.lint.linter import lint_document
from ds_accum.lint.rules import RULES

COUNT = int(os.environ.get("DS_ACCUM_GENERATED", "5000"))
STARTED = COUNT // 25


def test_the_linter_and_deepspeed_agree_about_loading_thousands_of_generated_configs() -> None:
    first = first_seed()
    lines = run_seeds("compare_generated.py", first, COUNT)
    found = [f"seed {line['seed']}: {line['report']}" for line in lines if "seed" in line]
    assert not found, f"{len(found)} disagreements from seed {first} on\n\n" + "\n\n".join(found[:20])
    tallies = [line for line in lines if "compared" in line]
    assert sum(line["compared"] for line in tallies) == COUNT
    # Configs that are all refused, or all loaded, would prove little.
    assert 0.2 < sum(line["refused"] for line in tallies) / COUNT < 0.8


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(random=st.randoms(use_true_random=False))
def test_hypothesis_finds_no_disagreement_either(random: Random, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp()
    comparison = compare(generate_with(random), folder)
    assert comparison.disagreement is None, str(comparison)


def test_the_rules_that_are_not_asked_would_have_said_nothing() -> None:
    first = first_seed()
    for seed in range(first, first + COUNT // 5):
        case = generate(seed)
        document = read_bytes(encoded(case), filename="ds_config.json")
        found = lint_document(document, launches=[case.launch])
        assert found == lint_document(document, launches=[case.launch], rules=tuple(RULES)), f"seed {seed}"


# ---------------------------------------------------------------------- started, and one step on

# With what a script may pass unknown, an error says that it dies of it whatever that is.
LAUNCHES = {
    "on one rank": Launch(world_size=1, framework="raw", client_optimizer=False, client_scheduler=False),
    "on two ranks": Launch(world_size=2, framework="raw", client_optimizer=False, client_scheduler=False),
    "in two stages": Launch(
        world_size=2, pipeline_parallel_size=2, framework="raw", client_optimizer=False, client_scheduler=False
    ),
    "with its own": Launch(world_size=1, framework="raw", client_optimizer=True, client_scheduler=True),
    "not known": Launch(world_size=1, framework="raw"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Doomed:
    """A generated config that the linter says can't start or take a step."""

    seed: int
    launch: str
    text: str
    diagnostics: tuple[Diagnostic, ...]

    def trials(self, folder: Path) -> Iterator[Trial]:
        launch = LAUNCHES[self.launch]
        path = folder / f"{self.launch} {self.seed}.json"
        path.write_bytes(encoded(Case(text=self.text, launch=launch)))
        optimizers: tuple[ClientOptimizer | None, ...] = (None, "torch", "deepspeed")
        if launch.client_optimizer is not None:
            optimizers = ("deepspeed",) if launch.client_optimizer else (None,)
        for optimizer in optimizers:
            yield Trial(
                name=f"seed {self.seed} {self.launch}, passing {optimizer}",
                config=str(path),
                ranks=launch.world_size or 1,
                pipeline_stages=launch.pipeline_parallel_size if launch.pipeline_parallel_size > 1 else 0,
                client_optimizer=optimizer,
                client_scheduler=launch.client_scheduler is True,
                step=True,
            )


def doomed(first: int, launch: str, count: int) -> Iterator[Doomed]:
    """The next configs from a seed on that the linter lets load and no further."""
    for seed in itertools.count(first):
        if count == 0:
            return
        case = generate(seed, launch=LAUNCHES[launch])
        diagnostics = lint_bytes(encoded(case), case.launch)
        if not certain(diagnostics, When.LOAD) and certain(diagnostics, When.START, When.FIRST_STEP):
            yield Doomed(seed=seed, launch=launch, text=case.text, diagnostics=diagnostics)
            count -= 1


def test_what_the_linter_says_a_generated_config_dies_of_it_dies_of(tmp_path: Path) -> None:
    first = first_seed()
    configs: dict[str, Doomed] = {}
    trials = []
    for launch in LAUNCHES:
        for config in doomed(first, launch, STARTED // len(LAUNCHES)):
            for trial in config.trials(tmp_path):
                configs[trial.name] = config
                trials.append(trial)
    found = []
    for name, outcome in run_trials(trials).items():
        config = configs[name]
        if disagreement_on_running(config.diagnostics, outcome) not in (None, "missed"):
            says = [describe_diagnostic(item) for item in config.diagnostics]
            found.append("\n    ".join([name, f"reached {outcome.reached}: {outcome.error}", *says, config.text]))
    assert not found, "\n".join(found)


# ------------------------------------------------------------------------ the generator and reducer


def test_a_seed_always_gives_the_same_config() -> None:
    there = {seed: generate(seed) for seed in range(500)}
    back = {seed: generate(seed) for seed in reversed(range(500))}
    assert there == back


def test_the_generator_reaches_every_block_and_every_key() -> None:
    written: set[tuple[str, ...]] = set()
    for seed in range(10_000):
        try:
            written.update(paths(hjson.loads(generate(seed).text, object_pairs_hook=dict)))
        except ValueError:
            continue
    known = {(*block.path, key) for block in schema_for(newest_version()).blocks.values() for key in block.keys}
    assert known - written == set()


def paths(value: Any, parent: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every key of a config."""
    for key, held in value.items() if isinstance(value, dict) else ():
        yield (*parent, key)
        yield from paths(held, (*parent, key))


def test_a_blind_linter_is_caught_and_the_config_is_reduced_to_its_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import agreement

    case = Case(
        text='{"train_batch_size": 8, "steps_per_print": 10, "zero_optimization": {"stage": 7, "overlap_comm": true}}',
        launch=Launch(world_size=8, tensor_parallel_size=2, framework="raw"),
    )
    assert compare(case, tmp_path).disagreement is None
    monkeypatch.setattr(agreement, "lint_bytes", lambda data, launch, filename: ())

    def fails(text: str, launch: Launch) -> bool:
        found = compare(Case(text=text, launch=launch), tmp_path)
        return found.disagreement == "missed" and "stage" in (found.verdict.error or "")

    text, launch = reduce(case.text, case.launch, fails)
    assert json.loads(text) == {"zero_optimization": {"stage": 7}}
    assert launch == Launch(world_size=1, framework="raw")
