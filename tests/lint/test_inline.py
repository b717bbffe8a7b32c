"""What a config says to the linter about itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ds_accum.config.document import Syntax, read_text
from ds_accum.config.launch import Launch
from ds_accum.errors import LayoutError
from ds_accum.lint import lint_text
from ds_accum.lint.inline import NOTHING, Inline, read_inline
from ds_accum.lint.linter import RULE_FAILED, examine
from ds_accum.lint.rules import RULES, unused_suppression

# Adds up at a world of 16, and at no other.
BATCH = {
    "train_batch_size": 256,
    "train_micro_batch_size_per_gpu": 8,
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 1.0,
}
REASON = "the launcher adds it up"


def config(lint: Any, **values: Any) -> str:
    return json.dumps({**BATCH, **values, "ds_accum": {"lint": lint}}, indent=2)


def codes(text: str, *world_sizes: int | None, **options: Any) -> list[str]:
    launches = [Launch(world_size=size) for size in world_sizes or (8,)]
    return [item.code for item in lint_text(text, launches=launches, **options)]


def test_a_suppressed_finding_is_not_reported_but_kept_apart() -> None:
    text = config({"ignore": {"DSA101": REASON}})
    assert codes(json.dumps(BATCH)) == ["DSA101"]
    assert codes(text) == []
    examination = examine(read_text(text), launches=[Launch(world_size=8)])
    assert [item.code for item in examination.suppressed] == ["DSA101"]


def test_what_the_file_says_does_not_hold_where_it_is_not_to_be_asked() -> None:
    document = read_text(config({"ignore": {"DSA101": REASON, "DSA999": REASON, "DSA102": REASON}, "world_size": 16}))
    examination = examine(document, launches=[Launch(world_size=8)], inline=False)
    assert [item.code for item in examination.found] == ["DSA101"]
    assert examination.suppressed == ()


@pytest.mark.parametrize("ignore", [{"DSA101": ""}, {"DSA101": " \n"}, {"DSA101": None}, ["DSA101"], "DSA101"])
def test_a_suppression_without_a_reason_suppresses_nothing_and_is_a_finding(ignore: Any) -> None:
    assert codes(config({"ignore": ignore})) == ["DSA101", "DSA251"]


def test_a_finding_at_one_of_several_worlds_makes_its_suppression_used() -> None:
    text = config({"ignore": {"DSA101": REASON}})
    assert codes(text, 8, 16) == []
    assert codes(text, 16) == ["DSA020"]


def test_a_suppression_of_a_rule_that_was_not_asked_is_not_called_unused() -> None:
    text = config({"ignore": {"DSA102": REASON}})
    assert codes(text, 16) == ["DSA020"]
    assert codes(text, 16, rules=[rule for rule in RULES if rule.code != "DSA102"]) == []


def test_nothing_is_called_unused_in_a_file_that_can_not_be_read() -> None:
    text = config({"ignore": {"DSA102": REASON}}).removesuffix("}")
    assert codes(text, 16) == ["DSA001"]


def test_the_finding_about_an_unused_suppression_can_be_suppressed_and_is_never_unused_itself() -> None:
    assert codes(config({"ignore": {"DSA102": REASON, "DSA020": REASON}}), 16) == []
    assert codes(config({"ignore": {"DSA020": REASON, "DSA021": REASON}}), 16) == []


def test_a_rule_that_fails_can_not_be_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise RuntimeError

    rule = unused_suppression.RULE
    object.__setattr__(rule, "check", fail)
    try:
        text = config({"ignore": {RULE_FAILED: REASON, "DSA102": REASON}})
        assert codes(text, 16) == [RULE_FAILED, "DSA021"]
    finally:
        object.__setattr__(rule, "check", unused_suppression.check)


def test_the_world_size_of_the_file_holds_where_no_other_is_given() -> None:
    assert codes(config({"world_size": 8}), None) == ["DSA101"]
    assert codes(config({"world_size": 8}), 16) == []
    assert codes(config({"world_size": 16}), None) == []


def test_degrees_that_do_not_fit_the_world_size_of_the_file_are_an_error_that_names_it() -> None:
    with pytest.raises(LayoutError, match=r"^ds_accum.lint.world_size in a.json: world 16 is not a multiple of tensor"):
        lint_text(config({"world_size": 16}), filename="a.json", launches=[Launch(tensor_parallel_size=3)])


def test_the_framework_of_the_file_holds_where_no_other_is_given() -> None:
    text = config({"framework": "hf"}, gradient_clipping="auto", steps_per_print="auto")
    whole = [item.code for item in lint_text(text, launches=[Launch(framework="raw")])]
    assert read_inline(read_text(text)) == Inline(framework="huggingface")
    assert codes(text, None) != whole


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        "",
        '{"ds_accum": 1}',
        '{"ds_accum": {"lint": []}}',
        '{"ds_accum": {"lint": {"ignore": 1, "world_size": true, "framework": "torch"}}}',
        '{"ds_accum": {"lint": {"world_size": 0, "framework": {}}}}',
        '{"ds_accum": {"lint": {"world_size": 8}}, "deepspeed_config": {}}',
    ],
)
def test_whatever_is_not_right_says_nothing(text: str) -> None:
    assert read_inline(read_text(text)) == NOTHING


def test_a_yaml_config_may_hold_the_block_too() -> None:
    document = read_text("ds_accum: {lint: {world_size: 8}}\n", syntax=Syntax.YAML)
    assert read_inline(document) == Inline(world_size=8)


def test_a_block_for_the_linter_only_does_not_choose_our_engine() -> None:
    deep = {"compile": {"deepcompile": True}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
    assert "DSA250" not in codes(config({"world_size": 16}, **deep), 16)
    text = json.dumps({**BATCH, **deep, "ds_accum": {"lint": {"world_size": 16}, "normalization": "token"}})
    assert "DSA250" in codes(text, 16)
    assert "DSA250" in codes(json.dumps({**BATCH, **deep, "ds_accum": {}}), 16)
    fp16 = {"fp16": {"enabled": True, "loss_scale": 128}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
    assert "DSA310" in codes(config({"world_size": 16}, **fp16), 16)
    assert "DSA310" not in codes(json.dumps({**BATCH, **fp16, "ds_accum": {}}), 16)


def test_a_mistake_in_the_linters_part_is_a_warning_where_only_the_linter_reads_it() -> None:
    (item,) = lint_text(config({"ignored": {}}), launches=[Launch(world_size=16)])
    assert (item.code, item.severity.value, item.when.value) == ("DSA251", "warning", "never")
    assert item.help == 'did you mean "ignore"?'
    (item,) = lint_text(config({"ignored": {}}), launches=[Launch(world_size=16, engine="ds-accum")])
    assert (item.severity.value, item.when.value) == ("error", "start")
    stock = Launch(world_size=16, engine="stock")
    assert lint_text(json.dumps({**BATCH, "ds_accum": {"normalisation": 1}}), launches=[stock]) == []
