"""The comparison rules: those of LiveCodeBench, with a tolerance where the expected number is a float."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archer.rewards.code.compare import compare_output, compare_values

DEFAULT = (None, 1e-6)


@pytest.mark.parametrize(
    ("expected", "got", "right"),
    [
        ("5", "5", True),
        ("5\n", "  5  \n\n", True),
        ("1 2\n3", "1 2 \n 3", True),
        ("1 2", "1  2", True),
        ("a b", "a  b", False),
        ("1\n2", "1\n\n2", False),
        ("1\n2", "1 2", False),
        ("Yes", "YES", False),
        ("0.333333333333", "0.333333", True),
        ("0.333333333333", "0.3333", False),
        ("1.0", "1", True),
        ("1", "1.0", True),
        ("1", "1e0", True),
        ("3", "3.0000001", False),
        ("3.0", "3.0000001", True),
        ("1000000.0", "1000000.5", True),
        ("1000000.0", "1000002.0", False),
        ("50000000000000000", "50000000000000001", False),
        ("0.5 1.25", "0.5 1.2500000001", True),
        ("x 0.5", "x 0.50000001", False),
        ("nan", "nan", True),
        ("nan", "NaN", False),
        ("inf", "1e999999", False),
        ("1.0", "nan", False),
        ("1.5", "1_0", False),
        ("1", "\u0661", False),
        ("1", "0x1", False),
        ("1.0", "1e9999999999", False),
        ("", "", True),
        ("", "x", False),
        ("1", "", False),
    ],
)
def test_output(expected, got, right):
    difference = compare_output(expected, got, *DEFAULT)
    assert (difference == "") == right, difference


def test_a_declared_tolerance_holds_for_integers_and_floats():
    assert compare_output("3", "3.0000001", 1e-6, 1e-6) == ""
    assert compare_output("3.0", "3.0000001", 1e-9, 1e-6) != ""
    assert compare_values(3, 3.0000001, 1e-6, 1e-6) == ""
    assert compare_values(3.0, 3.0000001, 0.0, 1e-6) != ""


@pytest.mark.parametrize(
    ("expected", "got", "right"),
    [
        ([0.5, 1.25], [0.5, 1.2500000001], True),
        ([0.5, 1.25], (0.5, 1.25), True),
        ([0.5], [0.6], False),
        (3, 3.0000001, False),
        (3, 3.0, True),
        (True, 1, True),
        (1, True, True),
        (None, None, True),
        (None, 0, False),
        ("a", "a", True),
        ("1", 1, False),
        ([], [], True),
        ([], None, False),
        ([[1], [2.0]], [(1,), [2.0000000001]], True),
        ({"a": 1.5}, {"a": 1.5000000001}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"1": 1}, {1: 1}, False),
        ([1, 2], {1, 2}, False),
        (0.5, math.nan, False),
        (0.5, 10**400, False),
        (10**400, 10**400, True),
        (1.5, "1.5", False),
    ],
)
def test_values(expected, got, right):
    difference = compare_values(expected, got, *DEFAULT)
    assert (difference == "") == right, difference


def test_values_that_resist_comparison_are_wrong():
    import decimal

    deep = current = []
    for _ in range(100_000):
        current.append([])
        current = current[0]
    cyclic = []
    cyclic.append(cyclic)
    assert compare_values([[1]], deep, *DEFAULT)
    assert compare_values([[1]], cyclic, *DEFAULT)
    assert compare_values(1, decimal.Decimal("sNaN"), *DEFAULT)
    assert compare_values(1, 10**10_000, *DEFAULT)


@given(st.text(), st.text())
def test_output_is_reflexive_and_never_raises(one, other):
    assert compare_output(one, one, *DEFAULT) == ""
    assert isinstance(compare_output(one, other, *DEFAULT), str)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=5))
def test_floats_printed_with_nine_digits_pass(values):
    expected = " ".join(repr(value) for value in values)
    # A float that prints without a point would be held to be an integer.
    assert compare_output(expected, " ".join(f"{value:.9f}" for value in values), *DEFAULT) == ""


@pytest.mark.parametrize(
    "got",
    ["1" * 10**7 + "x", "1" * 10**7, "0." + "3" * 10**7, "1 " * 10**6, "\n" * 10**7, "1e" + "9" * 10**7],
)
def test_long_outputs_take_time_by_length_only(got):
    # Each of these would take hours where the time grows with the square of the length.
    for expected in ("1.5", "1 " * 10**6 + "2", "2" * 1000):
        assert compare_output(expected, got, *DEFAULT)
