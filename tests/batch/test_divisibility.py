"""Nearest multiples and divisors: against brute force where that is possible, bounded everywhere else."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds_accum.batch.divisibility import (
    SEARCH_LIMIT,
    Indivisible,
    Neighbours,
    divisor_above,
    divisor_below,
    divisors,
    find_indivisible,
    nearest_divisors,
    nearest_multiples,
)

POSITIVE = st.integers(min_value=1)
A_LARGE_PRIME = 2**61 - 1


def by_trial(number: int) -> list[int]:
    return [candidate for candidate in range(1, number + 1) if number % candidate == 0]


def neighbours_in(legal: list[int], value: int) -> Neighbours:
    return Neighbours(
        below=max((one for one in legal if one < value), default=None),
        above=min((one for one in legal if one > value), default=None),
    )


def test_nearest_divisors_agree_with_brute_force_on_every_small_pair() -> None:
    for number in range(1, 121):
        legal = by_trial(number)
        for value in range(1, 125):
            assert nearest_divisors(number, value) == neighbours_in(legal, value), (number, value)


def test_nearest_multiples_agree_with_brute_force_on_every_small_pair() -> None:
    for divisor in range(1, 25):
        legal = list(range(divisor, 200, divisor))
        for value in range(1, 150):
            assert nearest_multiples(value, divisor) == neighbours_in(legal, value), (value, divisor)


def test_all_divisors_agree_with_brute_force() -> None:
    for number in range(1, 500):
        assert divisors(number) == tuple(by_trial(number))


@given(st.integers(1, 10**6), st.integers(1, 2 * 10**6))
def test_no_divisor_lies_between_a_value_and_its_neighbour(number: int, value: int) -> None:
    legal = divisors(number)
    assert legal is not None
    assert nearest_divisors(number, value) == neighbours_in(list(legal), value)


@pytest.mark.parametrize("number", [2**28 - 57, 16381**2, 2 * 134217689, SEARCH_LIMIT**2 - 1])
@pytest.mark.parametrize("value", [1, 2, 3, 16380, 16381, 16382, 10**7, 2**27, 2**28])
def test_the_search_is_exact_up_to_the_size_it_promises(number: int, value: int) -> None:
    # 2^28 - 57 and 134217689 are primes, 16381 is the largest one below 2^14: the longest walks there are.
    legal = divisors(number)
    assert legal is not None
    assert math.prod(legal) ** 2 == number ** len(legal)
    assert nearest_divisors(number, value) == neighbours_in(list(legal), value)


def test_the_list_of_divisors_stops_where_it_says() -> None:
    assert divisors(SEARCH_LIMIT**2 - 1) is not None
    assert divisors(SEARCH_LIMIT**2) is None


@given(st.integers(min_value=1, max_value=10**400), st.integers(min_value=1, max_value=10**400))
def test_a_neighbour_of_a_huge_number_divides_it_and_lies_on_its_side(number: int, value: int) -> None:
    near = nearest_divisors(number, value)
    if near.below is not None:
        assert number % near.below == 0
        assert 1 <= near.below < value
    if near.above is not None:
        assert number % near.above == 0
        assert value < near.above <= number


@given(
    st.lists(st.sampled_from([2, 3, 5, 7, 101, 16381, 32771, A_LARGE_PRIME]), max_size=9),
    st.integers(min_value=1, max_value=2**70),
)
def test_past_the_promised_size_a_neighbour_is_the_right_one_or_unknown(primes: list[int], value: int) -> None:
    legal = {1}
    for prime in primes:
        legal |= {divisor * prime for divisor in legal}
    near, wanted = nearest_divisors(math.prod(primes), value), neighbours_in(sorted(legal), value)
    assert near.below in (None, wanted.below)
    assert near.above in (None, wanted.above)


def test_a_search_that_ends_one_short_of_the_square_root_does_not_skip_it() -> None:
    prime = 32771  # the only divisor of prime x (prime + 1) from 16387 up to the square root
    assert prime - (16386 + 1) == SEARCH_LIMIT
    assert divisor_above(prime * (prime + 1), 16386) in (None, prime)
    assert divisor_above(prime * (prime + 1), 16387) == prime


def test_a_divisor_above_zero_is_one() -> None:
    assert divisor_above(12, 0) == 1


def test_neighbours_of_a_power_of_ten_are_found_beside_a_small_value() -> None:
    assert nearest_divisors(10**30, 7) == Neighbours(below=5, above=8)


def test_neighbours_are_found_beside_a_value_of_the_same_size() -> None:
    assert nearest_divisors(10**30, 10**30 - 1) == Neighbours(below=5 * 10**29, above=10**30)


def test_a_neighbour_out_of_reach_is_unknown_rather_than_waited_for() -> None:
    semiprime = A_LARGE_PRIME * (2**89 - 1)
    started = time.perf_counter()
    assert divisor_above(semiprime, 2) is None
    assert divisor_below(semiprime, semiprime) is None
    assert time.perf_counter() - started < 1


@given(POSITIVE, POSITIVE)
def test_a_fault_is_found_exactly_where_a_remainder_is(dividend: int, divisor: int) -> None:
    fault = find_indivisible(dividend, divisor)
    assert (fault is None) == (dividend % divisor == 0)


@given(POSITIVE, POSITIVE)
def test_the_facts_of_a_fault_enclose_the_dividend(dividend: int, divisor: int) -> None:
    fault = find_indivisible(dividend, divisor)
    if fault is None:
        return
    assert 0 < fault.remainder < divisor
    assert fault.above % divisor == 0
    assert fault.above - (fault.below or 0) == divisor
    assert (fault.below or 0) < dividend < fault.above
    assert (fault.below or 0) + fault.remainder == dividend


def test_a_dividend_below_its_divisor_has_no_multiple_below() -> None:
    assert Indivisible(dividend=3, divisor=8).below is None
    assert Indivisible(dividend=3, divisor=8).above == 8


def test_the_values_of_neighbours_leave_out_what_is_unknown() -> None:
    assert Neighbours(below=None, above=8).values == (8,)
    assert Neighbours(below=4, above=8).values == (4, 8)
    assert Neighbours(below=None, above=None).values == ()
