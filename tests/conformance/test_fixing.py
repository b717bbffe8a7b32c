"""What `--fix` makes of a config that DeepSpeed refuses is a config that DeepSpeed starts with, and trains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from agreement import describe
from corpus_files import CorpusFile, corpus_files
from deepspeed_load import load_file, load_values
from deepspeed_start import Outcome, Trial, run_trials
from generated import generate
from this_machine import why_only_here

from ds_accum.config.document import Document, read_text
from ds_accum.config.embedded import find_configs
from ds_accum.config.launch import Launch
from ds_accum.config.model import DeepSpeedConfig
from ds_accum.lint.diagnostic import Diagnostic, Severity, When
from ds_accum.lint.fixer import Fixed, fix_document
from ds_accum.lint.linter import lint_document

WORLD_SIZES = (1, 2)
# The values of GPT-NeoX's part of its file; for anything else the file itself.
Config = str | Mapping[str, Any]


def fixed(document: Document, launch: Launch, *, unsafe: bool) -> Fixed:
    def lint(again: Document) -> list[Diagnostic]:
        return lint_document(again, launches=[launch])

    return fix_document(document, lint, unsafe=unsafe)


# ------------------------------------------------------------------------------------------------------- real configs


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """A real config that --fix, with or without --unsafe-fixes, leaves without an error: before, and after."""

    name: str
    launch: Launch
    is_safe: bool
    before: Config
    after: Config

    def is_refused_at_load(self) -> bool:
        verdict = (
            load_file(self.before, self.launch)
            if isinstance(self.before, str)
            else load_values(self.before, self.launch)
        )
        return verdict.refused


@pytest.fixture(scope="module")
def mended(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Mended]:
    folder = tmp_path_factory.mktemp("mended")
    return [item for file in corpus_files(corpus) if file.reaches_deepspeed for item in _mended(file, folder)]


def _mended(file: CorpusFile, folder: Path) -> Iterator[Mended]:
    for world_size in WORLD_SIZES:
        launch = Launch(world_size=world_size, framework="raw", client_optimizer=False, client_scheduler=False)
        document = file.read()
        if not _refusals(lint_document(document, launches=[launch])):
            continue
        for unsafe in (False, True):
            result = fixed(document, launch, unsafe=unsafe)
            if not _refusals(result.diagnostics):
                name = f"{file.id}, {describe(launch)}"
                path = folder / f"{file.id}-{world_size}{file.path.suffix}"
                path.write_bytes(result.document.text.encode("utf-8"))
                before = file.config(launch)
                is_file = isinstance(before, str)
                yield Mended(
                    name=name,
                    launch=launch,
                    is_safe=not unsafe,
                    before=before,
                    after=str(path) if is_file else next(find_configs(result.document, launch)).values,
                )
                break


def _refusals(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    return [item for item in diagnostics if item.severity is Severity.ERROR and item.when is not When.NEVER]


@pytest.fixture(scope="module")
def outcomes(mended: list[Mended]) -> Mapping[str, Outcome]:
    """What came of starting each of them before, unless it does not even load, and after, with a step."""
    trials = []
    for item in mended:
        ranks = item.launch.world_size
        assert ranks is not None
        step = _names_an_optimizer(item)
        if not item.is_refused_at_load():
            trials.append(Trial(name=f"{item.name}, before", config=item.before, ranks=ranks, step=step))
        trials.append(Trial(name=f"{item.name}, after", config=item.after, ranks=ranks, step=step))
    return run_trials(trials)


def _names_an_optimizer(item: Mended) -> bool:
    values = item.after
    if isinstance(values, str):
        text = Path(values).read_bytes().decode("utf-8")
        values = next(find_configs(read_text(text, filename=values), item.launch)).values
    return DeepSpeedConfig.read(values, version=item.launch.version).block("optimizer").get("type") is not None


def test_deepspeed_starts_with_every_real_config_that_is_fixed(
    mended: list[Mended], outcomes: Mapping[str, Outcome]
) -> None:
    failed = []
    for item in mended:
        after = outcomes[f"{item.name}, after"]
        if after.failed and not why_only_here(after.error):
            failed.append(f"{item.name}: {after.error}")
    assert not failed, "\n".join(failed)


def test_deepspeed_refused_every_one_of_them_before(mended: list[Mended], outcomes: Mapping[str, Outcome]) -> None:
    accepted = [
        item.name
        for item in mended
        if f"{item.name}, before" in outcomes and not outcomes[f"{item.name}, before"].failed
    ]
    assert accepted == []


@pytest.mark.parametrize("is_safe", [True, False])
def test_some_are_mended_by_safe_fixes_and_some_only_by_others(mended: list[Mended], is_safe: bool) -> None:
    assert len({item.name.split(",")[0] for item in mended if item.is_safe is is_safe}) >= 3


# -------------------------------------------------------------------------------------------------- generated configs


@pytest.mark.parametrize("seed", range(0, 2000, 200))
def test_fixing_a_generated_config_twice_changes_nothing(seed: int) -> None:
    """And no fix is wrong: fixing raises where one leaves its finding, or changes more than it says."""
    fixed_something = 0
    for number in range(seed, seed + 200):
        case = generate(number)
        unsafe = number % 2 == 1
        once = fixed(read_text(case.text), case.launch, unsafe=unsafe)
        twice = fixed(once.document, case.launch, unsafe=unsafe)
        assert (twice.count, twice.document.text) == (0, once.document.text)
        assert once.count > 0 or once.document.text == case.text
        fixed_something += once.count > 0
    assert fixed_something
