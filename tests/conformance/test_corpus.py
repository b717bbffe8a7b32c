"""The linter and DeepSpeed say the same about every real config: as loaded at every world size, started, and one step on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import pytest
from agreement import Comparison, describe, describe_diagnostic, disagreement_on_running
from corpus_files import WORLD_SIZES, CorpusFile, as_huggingface_hands_it_on, corpus_files, recorded_refusals
from deepspeed_load import load_values
from deepspeed_start import ClientOptimizer, Outcome, Trial, run_trials

from ds_accum.config.embedded import find_configs
from ds_accum.config.launch import Launch
from ds_accum.lint.linter import lint_document
from ds_accum.lint.rule import Rule
from ds_accum.lint.rules import RULES

CORPUS_MADE_WITH = "0.19.8"

each_world = pytest.mark.parametrize("world_size", WORLD_SIZES)


def disagreements_at_load(corpus: Path, world_size: int, *, rules: Sequence[Rule] = RULES) -> Iterator[Comparison]:
    launch = Launch(world_size=world_size, framework="raw")
    for file in corpus_files(corpus):
        if not file.reaches_deepspeed:
            continue
        comparison = Comparison(
            data=file.path.read_bytes(),
            launch=launch,
            verdict=file.load(launch),
            diagnostics=tuple(lint_document(file.read(), launches=[launch], rules=rules)),
        )
        if comparison.disagreement is not None:
            yield comparison


@each_world
def test_the_linter_and_deepspeed_agree_about_loading_every_real_config(corpus: Path, world_size: int) -> None:
    found = list(disagreements_at_load(corpus, world_size))
    assert not found, "\n\n".join(map(str, found))


def test_a_linter_without_rules_disagrees_about_real_configs(corpus: Path) -> None:
    assert {item.disagreement for item in disagreements_at_load(corpus, 8, rules=())} == {"missed"}


@each_world
def test_the_linter_and_deepspeed_agree_about_what_hugging_face_makes_of_a_real_config(
    corpus: Path, world_size: int
) -> None:
    launch = Launch(world_size=world_size, framework="huggingface")
    found, compared = [], 0
    for file in corpus_files(corpus):
        if file.kind != "hf-auto-json":
            continue
        values = as_huggingface_hands_it_on(next(find_configs(file.read(), launch)), world_size)
        if values is None:
            continue
        comparison = Comparison(
            data=file.path.read_bytes(),
            launch=launch,
            verdict=load_values(values, launch),
            diagnostics=tuple(lint_document(file.read(), launches=[launch])),
        )
        compared += 1
        if comparison.disagreement is not None:
            found.append(comparison)
    assert compared
    assert not found, "\n\n".join(map(str, found))


@pytest.mark.skipif(version("deepspeed") != CORPUS_MADE_WITH, reason=f"recorded with DeepSpeed {CORPUS_MADE_WITH}")
@each_world
def test_deepspeed_loads_here_what_it_loaded_when_the_corpus_was_made(corpus: Path, world_size: int) -> None:
    recorded = {file: refused for (file, world), refused in recorded_refusals(corpus).items() if world == world_size}
    launch = Launch(world_size=world_size, framework="raw")
    refusals = {file.id: file.load(launch).refused for file in corpus_files(corpus) if file.id in recorded}
    assert refusals == recorded


# --- started, and one step on -----------------------------------------------------------------------------------------

WORLD_SIZES_OF_A_START = (1, 2)
# Nothing, and the one kind of optimizer that every setting takes.
CLIENT_OPTIMIZERS: tuple[ClientOptimizer | None, ...] = (None, "deepspeed")


@pytest.fixture(scope="module")
def outcomes(corpus: Path) -> list[tuple[CorpusFile, Launch, Outcome]]:
    """What came of starting every config that loads on one or two ranks, and of a step where there is an optimizer."""
    launches = {}
    trials = []
    for file in corpus_files(corpus):
        for world_size in WORLD_SIZES_OF_A_START if file.reaches_deepspeed else ():
            if file.load(Launch(world_size=world_size, framework="raw")).refused:
                continue
            for optimizer in CLIENT_OPTIMIZERS:
                passed = optimizer is not None
                launch = Launch(world_size=world_size, framework="raw", client_optimizer=passed, client_scheduler=False)
                name = f"{file.id}: {describe(launch)}"
                launches[name] = (file, launch)
                trials.append(
                    Trial(
                        name=name,
                        config=file.config(launch),
                        ranks=world_size,
                        client_optimizer=optimizer,
                        step=passed or file.names_an_optimizer(launch),
                    )
                )
    return [(*launches[name], outcome) for name, outcome in run_trials(trials).items()]


def test_the_linter_and_deepspeed_agree_about_running_every_real_config(
    outcomes: list[tuple[CorpusFile, Launch, Outcome]],
) -> None:
    assert outcomes
    found = []
    for file, launch, outcome in outcomes:
        diagnostics = lint_document(file.read(), launches=[launch])
        disagreement = disagreement_on_running(diagnostics, outcome)
        if disagreement is not None:
            findings = [f"    lint: {describe_diagnostic(item)}" for item in diagnostics]
            reached = f"    DeepSpeed: reached {outcome.reached or 'nothing'}; {outcome.error or 'no error'}"
            found.append("\n".join([f"{disagreement}: {file.id}, {describe(launch)}", reached, *findings]))
    assert not found, "\n".join(found)


def test_a_refusal_is_the_same_on_every_rank(outcomes: list[tuple[CorpusFile, Launch, Outcome]]) -> None:
    """Where one rank refuses and the other waits for it, the job hangs: no config of the corpus does that."""
    assert [(file.id, describe(launch)) for file, launch, outcome in outcomes if not outcome.symmetrical] == []


def test_without_its_rules_the_linter_would_miss_what_real_configs_die_of(
    outcomes: list[tuple[CorpusFile, Launch, Outcome]],
) -> None:
    assert {disagreement_on_running([], outcome) for _, _, outcome in outcomes} == {None, "missed"}
