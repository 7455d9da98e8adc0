"""Exact and numeric values."""

from fractions import Fraction
from math import factorial

import pytest

from archer.rewards.math.exact import integer, is_literal, rational
from archer.rewards.math.numeric import proportional, same_function
from archer.rewards.math.parser import parse
from archer.rewards.math.syntax import ParseError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"\frac{1}{3^{60}}", Fraction(1, 3**60)),
        ("2^{100}", Fraction(2**100)),
        (r"\frac{100!}{2^{50}}", Fraction(factorial(100), 2**50)),
        (r"3\times10^{5}", Fraction(300000)),
        ("3e5", Fraction(300000)),
        (r"-15\frac{3}{5}", Fraction(-78, 5)),
        (r"2\frac{4}{3}", Fraction(8, 3)),
        ("2 1/2", Fraction(5, 2)),
        (r"0.1\overline{6}", Fraction(1, 6)),
        ("1011_2", Fraction(11)),
        (r"\sqrt{\frac{9}{16}}", Fraction(3, 4)),
        (r"\sqrt[3]{-8}", Fraction(-2)),
        ("8^{2/3}", Fraction(4)),
        (r"\binom{5}{2}", Fraction(10)),
        (r"|-3|+\lfloor 2.5 \rfloor", Fraction(5)),
        ("1/2/3", Fraction(1, 6)),
        ("-2^2", Fraction(-4)),
        ("2^3^2", Fraction(512)),
        ("1,234,567.5", Fraction(2469135, 2)),
        (r"\sqrt2", None),
        ("1/0", None),
        ("0^0", None),
        ("9^{9^9}", None),
        ("x", None),
    ],
)  # fmt: skip
def test_exact_value(text, value):
    assert rational(parse(text)) == value


def test_integers_longer_than_the_interpreter_converts():
    digits = "123456789" * 2000
    assert integer(digits) % 10**9 == 123456789
    assert integer(digits) // 10 ** (len(digits) - 9) == 123456789


@pytest.mark.parametrize(
    "text", ["7", "-7", "0.5", r"\frac{3}{4}", r"2\frac{1}{3}", "3e5", "10^6", "7%", "1011_2"]
)
def test_literals(text):
    assert is_literal(parse(text))


@pytest.mark.parametrize(
    "text", ["38-1", "2^{10}", r"\sqrt{25}", "5!", "|37|", r"2\cdot3", "x", r"\pi", "3/4+1"]
)
def test_not_literals(text):
    assert not is_literal(parse(text))


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (r"\frac{\pi}{3^{500}}", r"\frac{\pi}{3^{501}}", False),
        (r"\sqrt2", r"\sqrt2+10^{-200}", False),
        (r"\sin^2x+\cos^2x-1", "0", True),
        (r"\sqrt{x^2}", "x", False),
        (r"\sqrt{x^2}", "|x|", True),
        (r"\ln(x^2)", r"2\ln x", True),
        (r"\sqrt{xy}", r"\sqrt x\sqrt y", True),
        (r"\lfloor x\rfloor", r"\lceil x\rceil-1", True),
        ("f(x)+f(y)", "f(y)+f(x)", True),
        ("f(x)+f(y)", "f(x+y)", False),
        ("(-1)^n", "(-1)^{n+2}", True),
        (r"\sqrt{-4}", "2i", True),
        ("9^{9^{9^9}}", "3", None),
    ],
)
def test_numeric_equality(first, second, same):
    assert same_function(parse(first), parse(second)) is same


def test_proportional_needs_one_constant_factor():
    first, second, third = parse("2x+4y-3"), parse("-x-2y+1.5"), parse("2x+4y-4")
    assert proportional(first, second, positive=False) is True
    assert proportional(first, second, positive=True) is False
    assert proportional(first, third, positive=False) is False


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("(" * 400 + "7" + ")" * 400, "too_deep"),
        ("7" * 30000, "too_long"),
        ("37 38", "rest"),
        ("(1,2", "brackets"),
        ("t(0,4]", "structure"),
        (r"37 \to 12", "rest"),
        ("", "empty"),
    ],
)
def test_what_the_grammar_refuses(text, label):
    with pytest.raises(ParseError, match=label):
        parse(text)
