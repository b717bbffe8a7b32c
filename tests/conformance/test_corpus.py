"""The linter and DeepSpeed say the same about every real config: as loaded at every world size, started, and one step on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import pytest
from agreement import Comparison, describe, describe_diagnostic, disagreement_on_running
from corpus_files import WORLD_SIZES, CorpusFile, corpus_files, recorded_refusals
from deepspeed_start import ClientOptimizer, Outcome, Trial, run_trials

from ds_accum.config.launch import Launch
from ds_accum.lint.diagnostic import Diagnostic
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


@pytest.mark.skipif(version("deepspeed") != CORPUS_MADE_WITH, reason=f"recorded with DeepSpeed {CORPUS_MADE_WITH}")
@each_world
def test_deepspeed_loads_here_what_it_loaded_when_the_corpus_was_made(corpus: Path, world_size: int) -> None:
    recorded = {file: refused for (file, world), refused in recorded_refusals(corpus).items() if world == world_size}
    launch = Launch(world_size=world_size, framework="raw")
    refusals = {file.id: file.load(launch).refused for file in corpus_files(corpus) if file.id in recorded}
    assert refusals == recorded


# ---------------------------------------------------------------------------------------------- started, and one step
# on

WORLD_SIZES_OF_A_START = (1, 2)
# Nothing, and the one kind of optimizer that every setting takes.
CLIENT_OPTIMIZERS: tuple[ClientOptimizer | None, ...] = (None, "deepspeed")


@pytest.fixture(scope="module")
def outcomes(corpus: Path) -> list[tuple[CorpusFile, Launch, Outcome]]:
    """What came of starting every config that loads on one or two ranks, and of a step, with its launch."""
    launches = {}
    trials = []
    for file in corpus_files(corpus):
        for world_size in WORLD_SIZES_OF_A_START if file.reaches_deepspeed else ():
            if file.load(Launch(world_size=world_size, framework="raw")).refused:
                continue
            for optimizer in CLIENT_OPTIMIZERS:
                launch = Launch(
                    world_size=world_size,
                    framework="raw",
                    client_optimizer=optimizer is not None,
                    client_scheduler=False,
                )
                name = f"{file.id}: {describe(launch)}"
                launches[name] = (file, launch)
                trials.append(
                    Trial(
                        name=name, config=file.config(launch), ranks=world_size, client_optimizer=optimizer, step=True
                    )
                )
    found = run_trials(trials)
    return [(*launches[name], outcome) for name, outcome in found.items()]


def test_the_linter_and_deepspeed_agree_about_starting_every_real_config(
    outcomes: list[tuple[CorpusFile, Launch, Outcome]],
) -> None:
    assert outcomes
    found = []
    for file, launch, outcome in outcomes:
        diagnostics = lint_document(file.read(), launches=[launch])
        disagreement = disagreement_on_running(diagnostics, outcome)
        if disagreement is not None:
            found.append(_report(disagreement, file, launch, outcome, diagnostics))
    assert not found, "\n".join(found)


def test_a_refusal_at_start_is_the_same_on_every_rank(outcomes: list[tuple[CorpusFile, Launch, Outcome]]) -> None:
    """Where one rank refuses and the other waits for it, the job hangs: no config of the corpus does that."""
    assert [(file.id, describe(launch)) for file, launch, outcome in outcomes if not outcome.symmetrical] == []


def test_the_optimizer_of_the_script_decides_about_some_real_configs(
    outcomes: list[tuple[CorpusFile, Launch, Outcome]],
) -> None:
    by_optimizer = {
        passed: {
            (file.id, launch.world_size)
            for file, launch, outcome in outcomes
            if outcome.failed and launch.client_optimizer is passed
        }
        for passed in (False, True)
    }
    assert by_optimizer[False] > by_optimizer[True] > set()


def _report(kind: str, file: CorpusFile, launch: Launch, outcome: Outcome, diagnostics: Sequence[Diagnostic]) -> str:
    findings = [f"    lint: {describe_diagnostic(item)}" for item in diagnostics]
    reached = f"reached {outcome.reached or 'nothing'}; {outcome.error or 'no error'}"
    return "\n".join([f"{kind}: {file.id}, {describe(launch)}", f"    DeepSpeed: {reached}", *findings])
