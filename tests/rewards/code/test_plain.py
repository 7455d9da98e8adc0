"""Values between processes: everything survives, and nothing that arrives can do harm."""

import json
from collections import Counter, OrderedDict, deque, namedtuple
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archer.rewards.code.child import plain, wire

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
SCALARS |= st.complex_numbers(allow_nan=False) | st.fractions() | st.decimals(allow_nan=False)
HASHABLE = st.recursive(SCALARS, lambda inner: st.tuples(inner, inner) | st.frozensets(inner), max_leaves=8)
VALUES = st.recursive(
    HASHABLE,
    lambda inner: (
        st.lists(inner) | st.dictionaries(HASHABLE, inner) | st.sets(HASHABLE) | st.tuples(inner, inner)
    ),
    max_leaves=20,
)


def through(value, **options):
    message = json.loads(json.dumps(plain.Encoder(**options).message(value)))
    (result,), _ = plain.decode(message, classes=options.get("classes"))
    return result


@given(VALUES)
def test_values_survive_with_their_types(value):
    result = through(value)
    assert result == value
    assert repr(result) == repr(value) or isinstance(value, set | frozenset | dict | list | tuple)
    assert type(result) is type(value)


@pytest.mark.parametrize(
    "value",
    [-(2**64), 0.1, float("inf"), -0.0, range(1, 9, 2), deque([1, 2], maxlen=3), bytearray(b"x"), "\ud800"],
)
def test_values_that_json_lacks(value):
    assert repr(through(value)) == repr(value)
    assert through(10**5000) == 10**5000


@pytest.mark.parametrize(
    ("value", "base"),
    [
        (Counter("aab"), {"a": 2, "b": 1}),
        (OrderedDict(a=1), {"a": 1}),
        (namedtuple("P", "x y")(1, 2), (1, 2)),
        (type("Int", (int,), {"__eq__": lambda *_: True, "__hash__": int.__hash__})(3), 3),
        (type("Str", (str,), {"__str__": lambda _: "lie"})("truth"), "truth"),
        (type("List", (list,), {"__iter__": lambda _: iter("lie")})([1, 2]), [1, 2]),
    ],
)
def test_subclasses_arrive_as_their_base(value, base):
    result = through(value)
    assert type(result) is type(base)
    assert result == base


def test_sharing_cycles_and_depth():
    shared = [1]
    cycle = [shared, shared, {"x": (shared,)}]
    cycle.append(cycle)
    result = through(cycle)
    assert result[0] is result[1] is result[2]["x"][0]
    assert result[3] is result
    deep = current = []
    for _ in range(50_000):
        current.append([])
        current = current[0]
    result, count = through(deep), 0
    while result:
        result, count = result[0], count + 1
    assert count == 50_000


def test_numpy_numbers_arrive_as_python_numbers():
    numpy = pytest.importorskip("numpy")
    assert through([numpy.int64(3), numpy.float32(0.5), numpy.bool_(True)]) == [3, 0.5, True]
    assert type(through(numpy.int64(3))) is int
    with pytest.raises(plain.NotPlain):
        through(numpy.ones(2))


def test_other_objects_are_refused():
    for value in (object(), len, plain, [1, object()], (i for i in ())):
        with pytest.raises(plain.NotPlain):
            through(value)


class Node:
    def __init__(self, value, after=None):
        self.value, self.after = value, after

    def total(self):
        return self.value + (self.after.total() if self.after else 0)


class Slotted:
    __slots__ = ("x",)


def test_objects_of_agreed_classes_arrive_as_their_attributes():
    classes = {"Node": Node, "Slotted": Slotted}
    assert through(Node(1, Node(2)), classes=classes).total() == 3
    slotted = Slotted()
    slotted.x = [5]
    assert through(slotted, classes=classes).x == [5]


@pytest.mark.parametrize("name", ["total", "__class__", "__dict__", "__eq__"])
def test_attributes_can_not_take_the_place_of_methods(name):
    message = {"roots": [[0]], "nodes": [["object", ["Node", [name], [5]]]]}
    with pytest.raises(plain.BadMessage):
        plain.decode(message, classes={"Node": Node})


def test_containers_can_be_filled_again():
    mine = [1, {"a": 2}]
    encoder = plain.Encoder()
    (theirs,), mutables = plain.decode(encoder.message(mine))
    theirs[1]["b"] = theirs
    theirs.append(3)
    answer = plain.Encoder().message(theirs, *mutables)
    (result, *_), _ = plain.decode(answer, reuse=encoder.mutables)
    assert result is mine
    assert mine[1:] == [{"a": 2, "b": mine}, 3]
    with pytest.raises(plain.BadMessage):
        plain.decode(plain.Encoder().message(0, {}), reuse=[mine])


BAD = [
    None,
    5,
    [],
    {},
    {"roots": 5, "nodes": []},
    {"roots": [[0]], "nodes": []},
    {"roots": [[]], "nodes": []},
    {"roots": [["x"]], "nodes": []},
    {"roots": [[0]], "nodes": [5]},
    {"roots": [[0]], "nodes": [["module", "os"]]},
    {"roots": [[0]], "nodes": [["object", ["Node", [], []]]]},
    {"roots": [[0]], "nodes": [["tuple", [[0]]]]},
    {"roots": [[0]], "nodes": [["tuple", [[1]]], ["tuple", []]]},
    {"roots": [[0]], "nodes": [["set", [[1]]], ["list", []]]},
    {"roots": [[0]], "nodes": [["dict", [1]]]},
    {"roots": [[0]], "nodes": [["int", "zz"]]},
    {"roots": [[0]], "nodes": [["range", [1, 2, 0]]]},
    {"roots": [[0]], "nodes": [["float", 5]]},
    {"roots": [[0]], "nodes": [["decimal", "x"]]},
    {"roots": [[0]], "nodes": [["fraction", ["1", "0"]]]},
    {"roots": [[0]], "nodes": [["deque", ["x", []]]]},
    # The hash of this would overrun the stack.
    {"roots": [[99_999]], "nodes": [["tuple", []], *(["tuple", [[n]]] for n in range(99_999))]},
]


@pytest.mark.parametrize("message", BAD, ids=range(len(BAD)))
def test_messages_that_describe_nothing(message):
    with pytest.raises(plain.BadMessage):
        plain.decode(message)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=10,
)
KINDS = st.sampled_from(
    [
        *(
            "list",
            "tuple",
            "dict",
            "set",
            "frozenset",
            "deque",
            "bytearray",
            "object",
            "int",
            "bool",
            "float",
        ),
        *("str", "bytes", "complex", "range", "decimal", "fraction", "x"),
    ]
)
NODES = st.lists(
    st.tuples(KINDS, st.lists(st.lists(st.integers(-1, 6), max_size=1) | JSON, max_size=4) | JSON)
)


@given(st.fixed_dictionaries({"roots": st.lists(JSON | st.lists(st.integers(0, 6))), "nodes": NODES}) | JSON)
def test_any_message_is_a_value_or_bad(message):
    try:
        plain.decode(message, classes={"Node": Node})
    except plain.BadMessage:
        return
    plain.decode(message, classes={"Node": Node})


def test_messages_in_a_stream():
    data = wire.pack({"a": 1}) + wire.pack([2]) + wire.pack("x")[:-1]
    assert wire.unpack_all(data) == [{"a": 1}, [2]]
    deep = b"[" * 100_000 + b"]" * 100_000
    assert wire.unpack_all(wire.pack(1) + wire.HEAD.pack(len(deep)) + deep + wire.pack(2)) == [1]
    assert wire.unpack_all(b"\xff" * 50) == []
    assert through(Decimal("1.50")) == Decimal("1.50")
    assert through(Fraction(1, 3)) == Fraction(1, 3)
