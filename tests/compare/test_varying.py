"""`--vary`: which values a key takes, and where they are put."""

from __future__ import annotations

import pytest

from ds_accum.compare.varying import Variation, combinations, parse_variation, set_values, short_names
from ds_accum.errors import UsageError


@pytest.mark.parametrize(
    ("text", "key", "values"),
    [
        ("zero_optimization.overlap_comm=true,false", "zero_optimization.overlap_comm", (True, False)),
        ("a=1,2.5,null,word", "a", (1, 2.5, None, "word")),
        ("a=[1,2],[3]", "a", ([1, 2], [3])),
        ('a={"x": [1, 2]},{"x": []}', "a", ({"x": [1, 2]}, {"x": []})),
        (r'a="one, two","say \"a, b\""', "a", ("one, two", 'say "a, b"')),
        ("a=1,true", "a", (1, True)),
        ("a=5e8", "a", (5e8,)),
    ],
)
def test_values_are_read_as_json_where_they_are_such(text: str, key: str, values: tuple[object, ...]) -> None:
    variation = parse_variation(text)
    assert (variation.key, variation.values) == (key, values)
    assert list(map(type, variation.values)) == list(map(type, values))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("zero_optimization.overlap_comm", "is no key=value,value"),
        ("=1,2", "is no key=value,value"),
        ("a..b=1", "is no key=value,value"),
        ("a=1,,2", "holds an empty value"),
        ("a=", "holds an empty value"),
        ("a=1,2,1", "holds 1 twice"),
        ("zero_optimization.stage=1,2", "can't vary zero_optimization.stage"),
        ("optimizer.params.lr=1,2", "can't vary optimizer.params.lr"),
        ("gradient_clipping=1,2", "can't vary gradient_clipping"),
        ("train_batch_size=1,2", "can't vary train_batch_size"),
    ],
)
def test_what_can_not_be_varied_is_refused_with_a_remedy(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as refused:
        parse_variation(text)
    assert refused.value.remedy


def test_several_keys_are_combined_each_with_each() -> None:
    made = list(combinations([Variation(key="a", values=(1, 2)), Variation(key="b", values=("x", "y"))]))
    assert made == [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}, {"a": 2, "b": "y"}]
    assert list(combinations([])) == [{}]


def test_a_key_that_is_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="--vary gives a twice"):
        list(combinations([Variation(key="a", values=(1,)), Variation(key="a", values=(2,))]))


def test_setting_a_key_leaves_the_block_it_came_from_alone() -> None:
    block = {"stage": 3, "overlap_comm": True}
    config = {"zero_optimization": block, "scalar": 1}
    set_values(config, {"zero_optimization.overlap_comm": False, "a.b.c": 4, "scalar.x": 5})
    assert config == {
        "zero_optimization": {"stage": 3, "overlap_comm": False},
        "scalar": {"x": 5},
        "a": {"b": {"c": 4}},
    }
    assert block == {"stage": 3, "overlap_comm": True}


def test_a_key_is_called_by_its_last_part_unless_two_end_alike() -> None:
    assert short_names(["a.x", "b.y"]) == {"a.x": "x", "b.y": "y"}
    assert short_names(["a.x", "b.x"]) == {"a.x": "a.x", "b.x": "b.x"}
