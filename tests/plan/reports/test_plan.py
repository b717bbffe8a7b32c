"""The report of a plan: every format holds the numbers, the terminal's fits 80 columns, and nothing is left unsaid."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from ds_accum.plan.hardware import read_hardware
from ds_accum.plan.layouts import Limits
from ds_accum.plan.planned import Plan
from ds_accum.plan.remedies import remedies_for
from ds_accum.plan.reports.plan import plan_document
from ds_accum.plan.reports.plan_json import plan_value
from ds_accum.plan.search import default_training, plan_batch
from ds_accum.plan.shapes import read_shape
from ds_accum.reporting import json_text, render_html, render_markdown, render_text


def plan(**changes: Any) -> Plan:
    given: dict[str, Any] = {
        "shape": read_shape("llama-2-70b"),
        "hardware": read_hardware("H100"),
        "world_size": 64,
        "sequence_length": 4096,
        "global_batch_size": 1024,
    }
    return plan_batch(**{**given, **changes})


PLANS = {
    "dense": lambda: plan(),
    "experts": lambda: plan(shape=read_shape("mixtral-8x7b"), limits=Limits(offload=True, max_bubble=0.05)),
    "offloaded": lambda: plan(
        shape=read_shape("llama-2-13b"),
        hardware=read_hardware("RTX4090"),
        world_size=8,
        global_batch_size=64,
        limits=Limits(offload=True),
    ),
    "one GPU": lambda: plan(shape=read_shape("gpt-125m"), world_size=1, global_batch_size=8),
    "nothing": lambda: plan(hardware=read_hardware("A100-40GB"), world_size=8),
}


@pytest.fixture(scope="module", params=PLANS)
def made(request: pytest.FixtureRequest) -> Plan:
    found: Plan = PLANS[request.param]()
    return found


def text_of(plan: Plan, width: int = 80) -> str:
    return render_text(plan_document(plan), width=width)


def words_of(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(made: Plan, width: int) -> None:
    assert max(map(len, text_of(made, width).splitlines())) <= width


def test_the_table_of_layouts_is_a_table_at_80_columns(made: Plan) -> None:
    lines = text_of(made).splitlines()
    if made.layouts:
        header = lines[lines.index("Layouts, best first") + 1]
        assert re.fullmatch(
            r" +(TP +)?(PP +)?(SP +)?(EP +)?DP +ZeRO +(recomp +)?micro +accum +memory +(bubble +)?(sent +)?step", header
        )


def test_every_format_names_the_layouts_and_their_numbers(made: Plan) -> None:
    document = plan_document(made)
    for text in (render_text(document, width=120), render_markdown(document), render_html(document)):
        assert made.shape.name in text and made.hardware.name in text
        for planned in made.layouts:
            assert str(planned.ledger.gradient_accumulation_steps) in text
            assert f"{planned.memory.peak_bytes / 1e9:.3g} GB" in text


def test_the_lead_says_the_winner_and_what_was_asked(made: Plan) -> None:
    lead = plan_document(made).lead
    if not made.layouts:
        assert lead[0] == f"nothing fits: none of {made.considered:,} layouts"
        return
    best = made.layouts[0]
    assert f"best of {made.fitting:,} layouts that fit, of {made.considered:,} legal ones" in lead[0]
    assert f"data parallel {best.layout.data_parallel_size}" in lead[0]
    assert f"accumulation {best.ledger.gradient_accumulation_steps}" in lead[0]
    assert f"{made.global_batch_size:,} samples of {made.sequence_length:,} tokens a step" in lead[1]


def test_each_layout_but_the_last_says_why_it_is_ahead_of_the_next(made: Plan) -> None:
    said = [
        paragraph
        for section in plan_document(made).sections
        if section.title == "Why each is ahead of the next"
        for paragraph in section.paragraphs
    ]
    assert len(said) == max(0, len(made.layouts) - 1)
    for number, paragraph in enumerate(said, start=1):
        assert re.match(rf"{number} over {number + 1}: (\S+ % faster, |as fast, )", paragraph)


def test_every_reason_for_dropping_is_shown_with_its_nearest_miss(made: Plan) -> None:
    text = words_of(text_of(made, 120))
    for item in made.dropped:
        assert f"{item.count:,}" in text
        if item.nearest is not None and item.reason == "memory":
            assert f"{item.nearest.needed / 1e9:.3g} GB of {item.nearest.available / 1e9:.3g} GB" in text


def test_the_parts_of_the_memory_and_of_the_step_are_all_shown(made: Plan) -> None:
    if made.layouts:
        sections = {section.title: section for section in plan_document(made).sections}
        memory = sections["Layout 1: the memory of the fullest GPU"].table
        assert memory is not None
        fullest = made.layouts[0].memory.fullest
        held = [line for line in fullest.lines if line.place == "device" and fullest.fullest_moment in line.moments]
        assert {row[0] for row in memory.rows} == {line.name for line in held if line.bytes}
        assert all(row[2] for row in memory.rows)
        step = sections["Layout 1: a step"].table
        assert step is not None and step.rows[-1][0] == "step" and step.rows[-1][2] == "100 %"


def test_a_layout_that_fills_the_memory_comes_with_one_that_does_not() -> None:
    best, *others = plan().layouts
    roomy = max(others, key=lambda planned: best.memory.peak_bytes - planned.memory.peak_bytes)
    there = best.memory.peak_bytes / 0.99
    assert roomy.memory.peak_bytes < 0.95 * there, "choose a case whose layouts differ more"
    tight = plan(hardware=read_hardware("H100").override(memory_bytes=round(there)))
    assert tight.layouts[0] == best
    (said,) = [sentence for sentence in plan_document(tight).lead if sentence.startswith("it fills")]
    assert re.search(r"layout \d needs [\d.]+ GB and is [\d.]+ % slower", said)
    free = plan(
        hardware=read_hardware("H100").override(memory_bytes=2 * round(there)), limits=Limits(max_micro_batch_size=1)
    )
    assert free.layouts[0].memory.peak_bytes < 1.9 * there, "choose a case with room"
    assert not any(sentence.startswith("it fills") for sentence in plan_document(free).lead)


def test_a_batch_that_rules_out_the_widest_data_parallelism_comes_with_those_that_do_not() -> None:
    uneven = plan(shape=read_shape("llama-3-8b"), world_size=100, global_batch_size=512)
    assert "data parallel 100 divides 500 or 600" in words_of(text_of(uneven, 120))


def test_where_nothing_fits_the_remedies_are_said() -> None:
    made = PLANS["nothing"]()
    text = words_of(render_text(plan_document(made, remedies=remedies_for(made)), width=80))
    assert "What would help Allow offload to the memory of the host: " in text
    assert re.search(r"Use \d+ GPUs: .* a step\.", text)


def test_what_all_layouts_have_in_common_is_said() -> None:
    text = words_of(text_of(PLANS["one GPU"](), 120))
    assert "Bf16 parameters, gradients that add up and travel in fp32, adamw, FlashAttention, fused kernels" in text
    plainer = replace(
        default_training(4096), communication_dtype=None, flash_attention=False, fused_kernels=False, dropout=True
    )
    other = plan(shape=read_shape("gpt-125m"), world_size=1, global_batch_size=8, training=plainer)
    said = words_of(text_of(other, 120))
    assert "add up in fp32 and travel in bf16 (under Ulysses in fp32), adamw, attention that keeps its scores" in said
    assert "matrices, dropout, pipelines in 1F1B" in said


def test_that_the_interleaved_schedule_is_not_tried_is_said() -> None:
    assert "pipelines in 1F1B; the interleaved schedule is not tried." in words_of(text_of(plan(), 120))


def test_notes_are_part_of_the_lead() -> None:
    made = PLANS["one GPU"]()
    assert plan_document(made, notes=("something was assumed",)).lead[-1] == "something was assumed"


def test_the_lead_is_of_clauses_without_a_full_stop(made: Plan) -> None:
    lead = plan_document(made).lead
    assert not any(clause.endswith(".") for clause in lead)
    assert all(clause[0].islower() or clause[0].isdigit() for clause in lead)


def test_json_holds_every_layout_in_full(made: Plan) -> None:
    value = json.loads(json_text(plan_value(made)))
    assert value["version"] == 1
    assert (value["considered"], value["fitting"]) == (made.considered, made.fitting)
    assert len(value["layouts"]) == len(made.layouts) and len(value["why"]) == max(0, len(made.layouts) - 1)
    for said, planned in zip(value["layouts"], made.layouts, strict=True):
        assert said["step_seconds"] == pytest.approx(sum(said["seconds_by_part"].values()))
        assert said["memory"]["peak_bytes"] == planned.memory.peak_bytes
        assert said["layout"]["data_parallel_size"] == planned.layout.data_parallel_size
        on_device = [line["bytes"] for line in said["memory"]["lines"] if line["place"] == "device"]
        assert sum(on_device) == planned.memory.peak_bytes
        assert said["deepspeed_config"]["train_batch_size"] == made.global_batch_size
        assert said["sent_bytes"] == sum(transfer["sent_bytes"] for transfer in said["transfers"])
    assert value["dropped"] == [
        {"reason": item.reason, "count": item.count, "nearest": said["nearest"]}
        for item, said in zip(made.dropped, value["dropped"], strict=True)
    ]
