"""The proof of the rules that are about another reader of the file than DeepSpeed: that reader refuses it."""

from __future__ import annotations

import json

import pytest

from ds_accum.config.block import read_block
from ds_accum.config.document import read_text
from ds_accum.config.model import DeepSpeedConfig
from ds_accum.config.schema import newest_version
from ds_accum.config.support import engine_refusals
from ds_accum.lint import lint_text
from ds_accum.lint.diagnostic import Proof
from ds_accum.lint.rules import RULES

PROVEN_HERE = ("DSA020", "DSA021", "DSA250", "DSA251", "DSA801")
# What Hugging Face's libraries do, in tests/conformance/test_trainer.py and test_accelerate.py.
PROVEN_WITH_TRAINER = ("DSA810", "DSA811", "DSA812", "DSA813", "DSA814", "DSA815")
PROVEN_WITH_ACCELERATE = ("DSA830", "DSA831", "DSA832", "DSA834", "DSA835")


def test_every_rule_about_another_reader_is_proven_here() -> None:
    assert sorted(rule.code for rule in RULES if rule.proof is Proof.OTHER_READER) == [
        *PROVEN_HERE,
        *PROVEN_WITH_TRAINER,
        *PROVEN_WITH_ACCELERATE,
    ]


def test_python_refuses_what_is_said_to_be_no_strict_json_and_reads_the_rest() -> None:
    rule = RULES.by_code["DSA801"]
    for example in rule.bad:
        with pytest.raises(json.JSONDecodeError):
            json.loads(example.config)
    for example in rule.good:
        if example.launch.framework == "huggingface":
            json.loads(example.config)


def test_the_engines_table_refuses_every_bad_example_and_no_good_one() -> None:
    rule = RULES.by_code["DSA250"]
    for examples, refused in ((rule.bad, True), (rule.good, False)):
        for example in examples:
            values = read_text(example.config).value
            # Where the block speaks to the linter only, the engine is DeepSpeed's own.
            if refused or values.get("ds_accum", {"lint": {}}).keys() != {"lint"}:
                config = DeepSpeedConfig.read(values, version=newest_version())
                assert bool(list(engine_refusals(config))) is refused


@pytest.mark.parametrize("code", ["DSA020", "DSA021"])
def test_the_linter_finds_the_same_without_a_suppression_that_has_no_effect(code: str) -> None:
    rule = RULES.by_code[code]
    for examples, has_effect in ((rule.bad, False), (rule.good, True)):
        for example in examples:
            values = json.loads(example.config)
            with_it = lint_text(example.config, launches=[example.launch])
            values["ds_accum"]["lint"]["ignore"] = {}
            without_it = lint_text(json.dumps(values), launches=[example.launch])
            found = [item.code for item in with_it if item.code != code]
            assert (found != [item.code for item in without_it]) is has_effect


def test_the_engines_model_refuses_a_bad_block_and_reads_a_good_one() -> None:
    rule = RULES.by_code["DSA251"]
    for example in rule.bad:
        assert read_block(read_text(example.config).value["ds_accum"])[1]
    for example in rule.good:
        assert read_block(read_text(example.config).value["ds_accum"])[1] == []
