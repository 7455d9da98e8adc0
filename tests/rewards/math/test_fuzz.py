"""Any text: never an exception, the same verdict twice, and never a point for another number."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from archer.rewards.math.decide import decide, prepare
from archer.rewards.math.exact import rational
from archer.rewards.math.extract import extract, final_text
from archer.rewards.math.parser import parse

PIECES = [
    r"\frac", r"\sqrt", "{", "}", "(", ")", "[", "]", r"\{", r"\}", ",", ";", "=", "<", r"\le", "+",
    "-", r"\pm", "^", "_", "!", "%", "|", "1", "23", "0.5", ".", "x", "y", "f", "i", "e", r"\pi",
    r"\infty", r"\cup", r"\in", r"\text{ and }", r"\text{cm}", r"\text", r"\sin", r"\log", r"\left",
    r"\right", r"\begin{pmatrix}", "&", r"\\", r"\end{pmatrix}", r"\approx", " ", "$", r"\$",
    r"\boxed{", "</think>", "<think>", ":", "/", r"\cdot", "'", "e5", r"^\circ", "apples", "or",
    r"\overline", r"\ldots", r"\binom", r"\mathbb{R}", r"\ne", r"\lfloor", r"\rfloor",
]  # fmt: skip
soup = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)
anything = st.one_of(soup, st.text(max_size=60))
GOLDS = [
    "7",
    r"\frac{2}{3}",
    r"\sqrt{2}",
    "x^2+1",
    "(1,2)",
    "1,2,3",
    r"[1,2)",
    "y=2x+1",
    r"\text{even}",
    "C",
    r"40\%",
]


@settings(max_examples=400, deadline=None, derandomize=True)
@given(anything)
@example("𝟕²")
def test_extraction_never_raises(text):
    found = extract(text, unboxed=True)
    assert (found.answer is None) == bool(found.reason)
    assert found.answer is None or found.answer.strip()
    final_text(text)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(anything, st.sampled_from(GOLDS))
def test_deciding_never_raises_and_repeats(answer, gold):
    first = decide(prepare(gold), answer)
    assert decide(prepare(gold), answer) == first
    assert first.reason


@settings(max_examples=300, deadline=None, derandomize=True)
@given(anything)
def test_an_answer_equals_itself_or_cannot_be_read(text):
    gold = prepare(text)
    if gold.node is not None:
        assert decide(gold, text).equal


numbers = st.one_of(
    st.integers(-(10**30), 10**30).map(str),
    st.tuples(st.integers(-999, 999), st.integers(1, 999)).map(lambda p: rf"\frac{{{p[0]}}}{{{p[1]}}}"),
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-1000, max_value=1000).map(
        "{:f}".format
    ),
)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(numbers, numbers)
def test_numbers_match_exactly_when_their_values_do(gold, answer):
    values = rational(parse(gold)), rational(parse(answer))
    match = decide(prepare(gold), answer)
    if match.equal:
        assert values[0] == values[1]
    elif values[0] == values[1]:
        assert match.reason == "unevaluated"


expressions = st.recursive(
    st.sampled_from(["x", "y", "2", "3", r"\pi"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: f"({p[0]}+{p[1]})"),
        st.tuples(inner, inner).map(lambda p: f"({p[0]}-{p[1]})"),
        st.tuples(inner, inner).map(lambda p: rf"{p[0]}\cdot {p[1]}"),
        st.tuples(inner, inner).map(lambda p: rf"\frac{{{p[0]}}}{{{p[1]}}}"),
        inner.map(lambda e: f"({e})^2"),
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(expressions, expressions)
def test_rearranged_expressions_are_equal_and_shifted_ones_are_not(first, second):
    together = f"{first}+{second}"
    gold = prepare(rf"{together}+\sqrt{{2}}")
    assert decide(gold, rf"\sqrt{{2}}+{second}+{first}").equal is not False
    assert decide(gold, rf"{together}+\sqrt{{3}}").equal is not True
