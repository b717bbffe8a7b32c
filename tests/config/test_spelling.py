"""What a misspelt word was meant to be."""

from __future__ import annotations

from ds_accum.config.spelling import closest_word, closest_words


def test_a_misspelt_word_finds_the_closest_known_one_as_that_is_written() -> None:
    known = ("overlap_comm", "reduce_scatter", "WarmupLR", "batch-size-mismatch")
    assert closest_word("Overlap-Com", known) == "overlap_comm"
    assert closest_word("warmup_lr", known) == "WarmupLR"
    assert closest_word("batch_size_mismach", known) == "batch-size-mismatch"
    assert closest_word("something", known) is None


def test_several_are_the_closest_first_and_differ_in_case_alone_if_they_must() -> None:
    files = ("zero1.json", "zero2.json", "readme.md", "zero2.JSON", "zero33.json")
    assert closest_words("zero2.jsn", files, most=3) == ["zero2.json", "zero2.JSON", "zero1.json"]
    assert closest_words("zero2.jsn", files, most=1) == ["zero2.json"]
