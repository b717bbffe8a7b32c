"""What a rule may look at, found once for all of them."""

from __future__ import annotations

from ds_accum.config.document import read_text
from ds_accum.config.embedded import find_configs
from ds_accum.config.launch import Launch
from ds_accum.lint.context import LintContext


def context() -> LintContext:
    document, launch = read_text('{"train_batch_size": 8}'), Launch(world_size=2)
    return LintContext.of(document, next(find_configs(document, launch)), launch)


def test_what_several_rules_need_is_looked_for_once_in_a_config() -> None:
    one, other = context(), context()
    calls: list[LintContext] = []

    def find(asked: LintContext) -> int:
        calls.append(asked)
        return len(calls)

    assert [asked.once("something", lambda asked=asked: find(asked)) for asked in (one, one, other)] == [1, 1, 2]
    assert one.once("something else", lambda: find(one)) == 3


def test_the_batch_is_resolved_once() -> None:
    asked = context()
    assert asked.batch is asked.batch
