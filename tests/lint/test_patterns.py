"""Which files a pattern means."""

from __future__ import annotations

from pathlib import PurePath

import pytest

from ds_accum.lint.patterns import matches


@pytest.mark.parametrize(
    ("pattern", "meant", "not_meant"),
    [
        ("old", ["old", "a/old/b.json", "old/b.json"], ["older", "a/b.old"]),
        ("old/", ["old/b.json"], ["older/b.json"]),
        ("*.hf.json", ["a.hf.json", "x/a.hf.json"], ["a.json", "a.hf.json5"]),
        ("conf/old", ["conf/old/a.json", "conf/old"], ["x/conf/old/a.json", "conf/older"]),
        ("./conf/*.json", ["conf/a.json"], ["conf/x/a.json", "a.json"]),
        ("conf/**/zero3*.json", ["conf/zero3.json", "conf/x/y/zero3_a.json"], ["conf/x/zero2.json"]),
        ("**/a.json", ["a.json", "x/y/a.json"], ["x/ba.json"]),
        ("conf/**", ["conf/x/a.json"], ["confx/a.json"]),
        ("ds_?.json", ["ds_1.json"], ["ds_12.json", "ds_.json"]),
        ("a+b(1)[x].json", ["a+b(1)[x].json"], ["aab1x.json"]),
    ],
)
def test_a_pattern_means(pattern: str, meant: list[str], not_meant: list[str]) -> None:
    assert [path for path in meant if not matches(pattern, PurePath(path))] == []
    assert [path for path in not_meant if matches(pattern, PurePath(path))] == []
