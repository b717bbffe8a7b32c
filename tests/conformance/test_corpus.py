"""The linter and DeepSpeed say the same about every real config, at every world size, at load and at start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

from agreement import Disagreement, certain, judge_load, short
from corpus_files import WORLD_SIZES, CorpusFile, corpus_files, recorded_refusals
from deepspeed_load import Verdict
from deepspeed_start import Outcome, Trial, run_trials
from ds_accum.config.accelerators import why_only_here
from ds_accum.config.launch import Launch
from ds_accum.lint.diagnostic import When
from ds_accum.lint.linter import lint_document
from ds_accum.lint.rule import Rule
from ds_accum.lint.rules import RULES
from this_machine import why_not_here

CORPUS_MADE_WITH = "0.19.8"

each_world = pytest.mark.parametrize("world_size", WORLD_SIZES)


def disagreements(corpus: Path, world_size: int, *, rules: Sequence[Rule] = RULES) -> Iterator[Disagreement]:
    launch = Launch(world_size=world_size, framework="raw")
    for file in corpus_files(corpus):
        if file.reaches_deepspeed:
            diagnostics = lint_document(file.read(), launches=[launch], rules=rules)
            found = judge_load(diagnostics, file.load(launch), launch, file.path.read_bytes())
            if found is not None:
                yield found


@each_world
def test_the_linter_and_deepspeed_agree_about_loading_every_real_config(corpus: Path, world_size: int) -> None:
    found = list(disagreements(corpus, world_size))
    assert not found, "\n\n".join(map(str, found))


def test_a_linter_without_rules_disagrees_about_real_configs(corpus: Path) -> None:
    assert {item.kind for item in disagreements(corpus, 8, rules=())} == {"missed"}


@pytest.mark.skipif(version("deepspeed") != CORPUS_MADE_WITH, reason=f"recorded with DeepSpeed {CORPUS_MADE_WITH}")
@each_world
def test_deepspeed_loads_here_what_it_loaded_when_the_corpus_was_made(corpus: Path, world_size: int) -> None:
    recorded = recorded_refusals(corpus)
    launch = Launch(world_size=world_size, framework="raw")
    verdicts = {
        file.id: file.load(launch).refused for file in corpus_files(corpus) if (file.id, world_size) in recorded
    }
    assert verdicts == {file: refused for (file, world), refused in recorded.items() if world == world_size}


# ------------------------------------------------------------------------------------------------------------- at start

START_WORLD_SIZES = (1, 2)


@pytest.fixture(scope="module")
def loadable(corpus: Path) -> list[tuple[CorpusFile, Launch]]:
    """Every config that DeepSpeed loads on one or on two ranks, with that launch."""
    launches = [Launch(world_size=world_size, framework="raw") for world_size in START_WORLD_SIZES]
    return [
        (file, launch)
        for file in corpus_files(corpus)
        for launch in launches
        if file.reaches_deepspeed and not file.load(launch).refused
    ]


@pytest.fixture(scope="module")
def started(loadable: list[tuple[CorpusFile, Launch]]) -> dict[str, Outcome]:
    """What came of starting each of them, without and with an optimizer of the script's own, by `name_of`."""
    return run_trials(
        Trial(
            name=name_of(file, launch, client_optimizer=client_optimizer),
            config=file.config(launch),
            ranks=launch.world_size or 1,
            client_optimizer="deepspeed" if client_optimizer else None,
        )
        for file, launch in loadable
        for client_optimizer in (False, True)
    )


def name_of(file: CorpusFile, launch: Launch, *, client_optimizer: bool) -> str:
    return f"{file.id} at world {launch.world_size}{' with its own optimizer' if client_optimizer else ''}"
