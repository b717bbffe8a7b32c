"""The account as a document and as JSON: every number is there, and says the same in both."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest

from ds_accum.batch import BatchLedger, ParallelLayout
from ds_accum.plan.account import ModelSize, StepAccount, account_step
from ds_accum.plan.experts import ExpertAccount, account_experts, uniform_routing, zipf_routing
from ds_accum.plan.length import epoch_of, training_length
from ds_accum.plan.reports.ledger import ledger_document, ledger_json
from ds_accum.plan.shapes import read_shape
from ds_accum.plan.splits import compare_splits, parse_splits
from ds_accum.reporting import Section, json_text, render_html, render_markdown, render_text

LEDGER = BatchLedger(micro_batch_size=4, data_parallel_size=8, gradient_accumulation_steps=4)
WORLD = ParallelLayout(world_size=8)
MIXTRAL = ModelSize.of(read_shape("mixtral-8x7b"))


def account(**options: object) -> StepAccount:
    return account_step(LEDGER, WORLD, **options)  # type: ignore[arg-type]


def experts(exponent: Fraction | None = None) -> ExpertAccount:
    routing = uniform_routing(64, 2) if exponent is None else zipf_routing(64, 2, exponent)
    return account_experts(routing, LEDGER, WORLD, sequence_length=4096, max_spread=Fraction(1, 10))


def section(title: str, *sections: Section) -> Section:
    (found,) = [section for section in sections if title in section.title]
    return found


def test_without_a_model_there_are_counts_and_no_bytes() -> None:
    document = ledger_document(account())
    assert [section.title for section in document.sections] == ["Batch", "What each ZeRO stage exchanges in a step"]
    assert document.lead == (LEDGER.describe(),)
    table = document.sections[1].table
    assert table is not None
    assert [row[2:] for row in table.rows] == [("1", "0"), ("1", "1"), ("4", "1"), ("4", "4")]


def test_the_chosen_stage_is_named_with_what_it_sends() -> None:
    known = account(model=ModelSize(parameters=10**9), sequence_length=128)
    document = ledger_document(known, zero_stage=2)
    said = "ZeRO stage 2 synchronizes gradients 4 times a step and gathers parameters once: 15.8 GB sent by a rank for them"
    assert document.lead[-1] == said
    assert known.stages[2].sent_bytes == 4 * 2 * 7 * 2 * 10**9 // 8 + 7 * 2 * 10**9 // 8


def test_every_transfer_has_a_row_with_its_formula_and_its_source() -> None:
    layout = ParallelLayout(world_size=16, tensor_parallel_size=2, expert_parallel_size=4)
    known = account_step(LEDGER, layout, sequence_length=4096, model=MIXTRAL)
    document = ledger_document(known)
    formulas = section("By what formula", *document.sections).table
    layers = section("What the layers exchange", *document.sections).table
    assert formulas is not None
    assert layers is not None
    transfers = [transfer for stage in known.stages for transfer in stage.transfers]
    assert [row[2] for row in formulas.rows] == [transfer.formula for transfer in transfers]
    assert [row[2] for row in layers.rows] == [transfer.formula for transfer in known.layer_transfers]
    for transfer in transfers:
        assert transfer.source in formulas.note
    for transfer in known.layer_transfers:
        assert transfer.source in layers.note


def test_json_has_the_whole_bytes_of_every_stage() -> None:
    known = account(model=MIXTRAL, sequence_length=4096)
    told = ledger_json(known, experts=experts(), splits=compare_splits([LEDGER], WORLD))
    assert json.loads(json_text(told)) == told
    stages = told["stages"]
    assert isinstance(stages, list)
    for stage, said in zip(known.stages, stages, strict=True):
        assert said["sent_bytes"] == stage.sent_bytes == sum(item["sent_bytes"] for item in said["transfers"])
        assert said["synchronizations"] == stage.synchronizations


def test_an_epoch_says_what_it_leaves_over_and_what_it_deals_twice() -> None:
    epoch = epoch_of(LEDGER, 10_001)
    document = ledger_document(account(), epoch=epoch, length=training_length(LEDGER, epoch=epoch))
    table = section("Length", *document.sections).table
    assert table is not None
    numbers = {row[0]: row[1] for row in table.rows}
    assert numbers["micro-batches left over"] == "1"
    assert numbers["samples dealt twice"] == "7"
    assert numbers["total_num_steps"] == "78"


@pytest.mark.parametrize(
    ("exponent", "sentence"),
    [(None, "4 does already"), (Fraction(1), "No accumulation brings the spread to 10 %")],
)
def test_experts_say_whether_accumulation_is_enough(exponent: Fraction | None, sentence: str) -> None:
    document = ledger_document(account(), experts=experts(exponent))
    found = section("64 experts, 2 a token", *document.sections)
    assert any(sentence in paragraph for paragraph in found.paragraphs)
    assert any("can't mend the router" in paragraph for paragraph in found.paragraphs) == (exponent is not None)


def test_splits_that_deal_an_epoch_differently_are_told_apart() -> None:
    splits = compare_splits(parse_splits("4x8x4,8x16x1"), WORLD, num_samples=10_000)
    text = " ".join(render_text(ledger_document(account(), splits=splits)).split())
    assert "78 steps, 1 micro-batch left over and 0 samples dealt twice in 4x8x4" in text
    assert "79 steps, 0 micro-batches left over" in text
    alike = compare_splits(parse_splits("4x8x4,8x8x2"), WORLD, num_samples=128)
    assert "The end of an epoch" not in render_text(ledger_document(account(), splits=alike))


def test_every_format_holds_the_same_numbers() -> None:
    splits = compare_splits(
        parse_splits("4x8x4,8x16x1"), WORLD, sequence_length=4096, model=MIXTRAL, num_samples=10_000
    )
    known = account(model=MIXTRAL, sequence_length=4096)
    document = ledger_document(known, splits=splits, experts=experts(), length=training_length(LEDGER, total_steps=9))
    assert known.rank_parameters is not None
    held = f"{known.rank_parameters[1]:,}"
    for form in (render_text(document), render_markdown(document), render_html(document)):
        for number in ("524,288", "4x8x4", held, "8x16x1"):
            assert number in form
