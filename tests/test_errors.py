"""The exception tree: what it catches, what it carries, and that the drawing of it is true."""

from __future__ import annotations

import copy
import pickle
import re

import pytest

from ds_accum import errors
from ds_accum.batch import BatchLedger, ParallelLayout
from ds_accum.errors import AccumulationError, BatchError, ConfigError, DSAccumError, LayoutError, UsageError

EVERY_CLASS = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, DSAccumError)]


def names_drawn(docstring: str) -> set[str]:
    return set(re.findall(r"^\s*[│├└─ ]*(\w+Error)\b", docstring, flags=re.MULTILINE))


def test_the_tree_in_the_docstring_draws_every_exception() -> None:
    assert errors.__doc__ is not None
    assert names_drawn(errors.__doc__) == {cls.__name__ for cls in EVERY_CLASS} == set(errors.__all__)


def test_a_forgotten_exception_is_missing_from_the_drawing() -> None:
    assert errors.__doc__ is not None
    without = errors.__doc__.replace("├── LayoutError ", "")
    assert names_drawn(without) == {cls.__name__ for cls in EVERY_CLASS} - {"LayoutError"}


@pytest.mark.parametrize("cls", EVERY_CLASS)
def test_every_exception_is_caught_by_the_root(cls: type[DSAccumError]) -> None:
    assert issubclass(cls, DSAccumError)


@pytest.mark.parametrize("cls", [ConfigError, LayoutError, BatchError, UsageError])
def test_what_a_user_can_fix_is_a_value_error(cls: type[DSAccumError]) -> None:
    assert issubclass(cls, ValueError)


def test_the_root_is_no_value_error_so_that_other_families_can_join() -> None:
    assert not issubclass(DSAccumError, ValueError)


@pytest.mark.parametrize(
    ("child", "parent"), [(LayoutError, ConfigError), (BatchError, ConfigError), (UsageError, DSAccumError)]
)
def test_each_exception_hangs_where_it_is_drawn(child: type[DSAccumError], parent: type[DSAccumError]) -> None:
    assert parent in child.__bases__


def test_a_usage_error_is_not_taken_for_a_config_error() -> None:
    assert not issubclass(UsageError, ConfigError)


@pytest.mark.parametrize("cls", EVERY_CLASS)
def test_the_message_is_the_text_and_the_remedy_stands_beside_it(cls: type[DSAccumError]) -> None:
    assert str(cls("the fact")) == "the fact"
    assert cls("the fact").remedy is None
    assert cls("the fact", remedy="what to do").remedy == "what to do"


@pytest.mark.parametrize("cls", EVERY_CLASS)
def test_the_remedy_is_in_the_text_of_what_ends_in_a_traceback_and_beside_it_elsewhere(cls: type[DSAccumError]) -> None:
    error = cls("the fact", remedy="what to do")
    assert error.message == "the fact"
    assert str(error) == ("the fact; what to do" if issubclass(cls, AccumulationError) else "the fact")
    error.shows_remedy = True
    assert (str(error), error.message) == ("the fact; what to do", "the fact")
    assert str(pickle.loads(pickle.dumps(error))) == "the fact; what to do"


@pytest.mark.parametrize("clone", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_keeps_its_facts_on_the_way_from_a_worker_process(clone) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(BatchError) as batch:
        BatchLedger.solve(data_parallel_size=4, global_batch_size=100, micro_batch_size=8)
    with pytest.raises(LayoutError) as layout:
        ParallelLayout(world_size=12, tensor_parallel_size=8)
    for error in (batch.value, layout.value):
        assert type(clone(error)) is type(error)
        assert str(clone(error)) == str(error)
        assert clone(error).remedy == error.remedy
    assert clone(batch.value).imbalance == batch.value.imbalance
    assert clone(layout.value).indivisible == layout.value.indivisible
    assert clone(layout.value).legal == layout.value.legal
