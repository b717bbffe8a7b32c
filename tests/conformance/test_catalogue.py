"""Every known mistake is found by a rule, or there is a reason why none can find it; no row is forgotten."""

from __future__ import annotations

import pytest
from catalogue_entries import CatalogueError, Entry, entries_in, read_catalogue, repeated

from ds_accum.lint import lint_text

ENTRIES = read_catalogue()

# How many rows each list has; every one of them must be there.
REQUIRED_ROWS = {
    "config-": 107,
    "wild-": 39,
    "loader-": 6,
    "reports-A": 22,
    "reports-B": 17,
    "reports-C": 10,
    "reports-E": 21,
    "reports-F": 18,
    "reports-G": 9,
    "reports-J": 17,
}


def codes_found_in(entry: Entry) -> set[str]:
    """The codes of all findings in an entry's config, for its launch."""
    return {item.code for item in lint_text(entry.text, launches=[entry.launch], origin=entry.origin)}


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if not entry.left_out], ids=lambda entry: entry.row)
def test_a_rule_finds_the_mistake(entry: Entry) -> None:
    found = codes_found_in(entry)
    assert found & set(entry.rules), f"{entry.file}, {entry.row}: {entry.says}; found {sorted(found)}"


def test_a_row_stands_for_one_entry() -> None:
    assert repeated(ENTRIES) == {}


def test_no_row_is_missing() -> None:
    there = {entry.required_row for entry in ENTRIES}
    missing = [
        f"{name}{number}"
        for name, count in REQUIRED_ROWS.items()
        for number in range(1, count + 1)
        if f"{name}{number}" not in there
    ]
    assert missing == []


# --- the reader can fail ----------------------------------------------------------------------------------------------

_STAGE_4 = """{"train_batch_size": 8, "zero_optimization": {"stage": 4}}"""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("row: config-1", "must be a list"),
        ("- config-1", "must be a mapping"),
        ("- {row: 1, says: a}", "no row"),
        ("- {row: config-1, says: a, left_out: b, why: c}", "unknown keys why"),
        ("- {row: config-1, left_out: b}", "must say what the row is about"),
        ("- {row: config-1, says: a}", "needs `rules`"),
        ("- {row: config-1, says: a, left_out: ''}", "must say why"),
        ("- {row: config-1, says: a, left_out: b, rules: [DSA101]}", "neither rules nor a config"),
        ("- {row: config-1, says: a, rules: [DSA998], example: true}", "no rule DSA998"),
        ("- {row: config-1, says: a, rules: [DSA101]}", "either a `config` or `example"),
        ("- {row: config-1, says: a, rules: [DSA101], config: '', example: true}", "either a `config` or `example"),
        ("- {row: config-1, says: a, rules: [DSA101], example: yes, launch: {}}", "brings its own launch"),
        ("- {row: config-1, says: a, rules: [DSA101], config: {train_batch_size: 8}}", "text of a config"),
        ("- {row: config-1, says: a, rules: [DSA101], config: '', launch: {world: 8}}", "keyword arguments of Launch"),
    ],
)
def test_an_entry_that_says_too_little_is_refused(text: str, problem: str) -> None:
    with pytest.raises(CatalogueError, match=problem):
        entries_in(text)


def test_an_entry_is_read_with_its_launch() -> None:
    (entry,) = entries_in(
        f"""
- row: config-8b
  says: a triple that does not add up
  rules: [DSA101]
  config: '{_STAGE_4}'
  launch: {{world_size: 8, deepspeed_version: 0.19.2}}
"""
    )
    assert (entry.required_row, entry.rules, entry.text) == ("config-8", ("DSA101",), _STAGE_4)
    assert (entry.launch.world_size, entry.launch.deepspeed_version) == (8, (0, 19, 2))
    assert "DSA013" in codes_found_in(entry)


def test_an_example_is_the_first_bad_one_of_the_first_rule() -> None:
    (entry,) = entries_in("- {row: config-8, says: a triple that does not add up, rules: [DSA101], example: true}")
    assert "DSA101" in codes_found_in(entry)


def test_a_row_that_two_entries_claim_is_noticed() -> None:
    twice = entries_in("- {row: wild-1, says: a, left_out: b}\n- {row: wild-1, says: a, left_out: b}")
    assert repeated(twice) == {"wild-1": ["<text>", "<text>"]}
