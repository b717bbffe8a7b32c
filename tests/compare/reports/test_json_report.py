from __future__ import annotations

import copy
import dataclasses
import json
import math
from typing import Any

import jsonschema
import pytest

from ds_accum.compare.reports import json_schema, read_json, render_json
from ds_accum.errors import ConfigError
from tests.compare.example import EXAMPLES, comparison, extreme


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_written_is_read_again_and_fits_the_schema(name: str) -> None:
    text = render_json(EXAMPLES[name]())
    values = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    jsonschema.Draft202012Validator(json_schema()).validate(values)
    assert render_json(read_json(text)) == text


def test_the_same_comparison_is_read_again() -> None:
    assert read_json(render_json(comparison())) == comparison()


def test_numbers_that_json_has_no_word_for_survive() -> None:
    read = read_json(render_json(extreme()))
    parity, speed = read.results[0].parity, read.results[0].speed
    assert parity is not None and speed is not None
    assert parity.largest_error == math.inf
    assert parity.steps[0].loss == 1e30
    assert math.isnan(parity.steps[1].loss or 0.0)


def test_the_schema_is_one_and_refuses_what_is_no_report() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    values = json.loads(render_json(comparison()))
    for change in (
        lambda report: report.pop("results"),
        lambda report: report.update(format=2),
        lambda report: report["results"][0].update(status="splendid"),
        lambda report: report["results"][0]["speed"].update(forward_seconds="fast"),
        lambda report: report["spec"].pop("world_size"),
    ):
        changed: Any = copy.deepcopy(values)
        change(changed)
        assert not jsonschema.Draft202012Validator(json_schema()).is_valid(changed)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is not JSON at line 1, column 1"),
        ('{"format": 1,', "it is not JSON"),
        (render_json(comparison())[:2000], "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("[]", "no report of a comparison"),
        ("{}", "no report of a comparison"),
        ('"text"', "no report of a comparison"),
        ('{"format": 2}', "format 2, this ds-accum reads format 1"),
        ('{"format": "1"}', 'format "1"'),
        ('{"format": true}', "format true"),
        ('{"format": 1}', "damaged at "),
    ],
)
def test_damaged_and_other_files_are_refused_in_one_sentence(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_json(text)
    message = str(caught.value)
    assert said in message
    assert "\n" not in message and not message.endswith(".")
    assert caught.value.remedy


def test_the_place_of_the_damage_is_named() -> None:
    values = json.loads(render_json(comparison()))
    values["results"][2]["memory"]["peak"] = "much"
    with pytest.raises(ConfigError, match=r"damaged at results\.2\.memory\.peak: input should be"):
        read_json(json.dumps(values))


def test_results_of_a_variant_that_was_not_run_or_twice_are_refused() -> None:
    whole = comparison()
    stranger = dataclasses.replace(whole, results=(dataclasses.replace(whole.results[0], name="stranger"),))
    with pytest.raises(ConfigError, match="no variant 'stranger'"):
        read_json(render_json(stranger))
    with pytest.raises(ConfigError, match="two variants have the same name"):
        read_json(render_json(dataclasses.replace(whole, results=whole.results[:1] * 2)))


def test_what_a_later_release_adds_is_skipped() -> None:
    values = json.loads(render_json(comparison()))
    values["results"][0]["speed"]["news"] = 1
    assert read_json(json.dumps(values)) == comparison()
