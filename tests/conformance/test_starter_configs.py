"""DeepSpeed starts with what `ds-accum init` writes, and takes an optimizer step: every combination of its choices."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from corpus_files import as_huggingface_hands_it_on
from deepspeed_start import Outcome, Trial, run_trials
from this_machine import why_only_here

from ds_accum.batch import ParallelLayout
from ds_accum.cli.init import config_text
from ds_accum.config.document import Syntax, read_text
from ds_accum.config.embedded import find_configs
from ds_accum.config.launch import Launch
from ds_accum.config.starter import Starter
from ds_accum.errors import UsageError

pytestmark = pytest.mark.engine

RANKS = 2


def starters() -> Iterator[tuple[str, Starter]]:
    choices = itertools.product(
        range(4), ("bf16", "fp16", "fp32"), ("none", "cpu", "nvme"), (False, True), (False, True), (1, 2)
    )
    for stage, precision, offload, client_optimizer, huggingface, pipeline in choices:
        try:
            starter = Starter(
                stage=stage,
                layout=ParallelLayout(world_size=RANKS, pipeline_parallel_size=pipeline),
                precision=precision,
                offload=offload,
                nvme_path="/tmp" if offload == "nvme" else None,
                client_optimizer=client_optimizer,
                huggingface=huggingface,
                global_batch_size=8,
                gradient_accumulation_steps=2,
                total_steps=100,
            )
        except UsageError:
            continue
        # Trainer has no pipelines, and its optimizer is one of the script's own already.
        if not huggingface or (pipeline == 1 and not client_optimizer):
            yield f"{stage} {precision} {offload} {client_optimizer=} {huggingface=} {pipeline=}", starter


def as_deepspeed_gets_it(starter: Starter) -> Any:
    """The values, with what Trainer fills in."""
    text = config_text(starter)
    if not starter.huggingface:
        return json.loads(text)
    document = read_text(text, filename="ds_config.json", syntax=Syntax.HJSON)
    (embedded,) = find_configs(document, Launch(framework="huggingface"))
    return as_huggingface_hands_it_on(embedded, starter.layout.data_parallel_size)


def trial(name: str, starter: Starter) -> Trial:
    config = as_deepspeed_gets_it(starter)
    return Trial(
        name=name,
        config=config,
        ranks=RANKS,
        pipeline_stages=starter.layout.pipeline_parallel_size if starter.layout.pipeline_parallel_size > 1 else 0,
        client_optimizer=None if "optimizer" in config else "torch",
        step=True,
    )


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    return run_trials(trial(name, starter) for name, starter in starters())


def test_deepspeed_starts_with_every_fresh_config_and_takes_a_step(outcomes: dict[str, Outcome]) -> None:
    assert len(outcomes) > 60
    failed = {
        name: outcome.error
        for name, outcome in outcomes.items()
        if outcome.reached != "first step" and not why_only_here(outcome.error)
    }
    assert not failed


def test_nearly_all_of_them_could_be_tried_here(outcomes: dict[str, Outcome]) -> None:
    reached = [name for name, outcome in outcomes.items() if outcome.reached == "first step"]
    excused = {name for name in outcomes if name not in reached}
    assert all("nvme" in name or "fp16" in name for name in excused), excused
    assert len(reached) > len(outcomes) / 2
