"""Values as JSON, without losing types, shared references or cycles, and without running anything on arrival.

A message is ``{"roots": [value, ...], "nodes": [[kind, payload], ...]}``. A value is a JSON scalar, or
``[i]`` for node ``i``. Everything is flat, so a list of a million links needs no recursion. The reader builds
exact built-in types (a subclass arrives as its base), so nothing that a program defines takes part in a later
comparison; objects of agreed classes arrive as their attributes; anything else goes through ``export``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from typing import Any

_SMALL = 1 << 53
_CONTAINERS: tuple[tuple[type, str], ...] = (
    (list, "list"),
    (tuple, "tuple"),
    (dict, "dict"),
    (set, "set"),
    (frozenset, "frozenset"),
    (deque, "deque"),
    (bytearray, "bytearray"),
)
# The hash of a tuple is computed by recursion in C, without a guard against the end of the stack.
_DEEPEST = 200
_KINDS = dict(_CONTAINERS)
_FILLED = {"list", "dict", "set", "deque", "bytearray", "object"}

Export = Callable[[object], list[Any]]
Import = Callable[[str, Any], object]


class NotPlain(TypeError):
    """A value of a type that has no plain form."""


class BadMessage(ValueError):
    """Nodes that don't describe any value."""


def refuse(value: object) -> list[Any]:
    """The ``export`` that allows plain values only."""
    raise NotPlain(f"a {type(value).__name__} has no plain form")


class Encoder:
    """Encodes values; ``mutables`` lists the containers met, in the order in which a reader will list them."""

    def __init__(self, export: Export = refuse, classes: Mapping[str, type] | None = None) -> None:
        self._export = export
        self._classes = classes or {}
        self._nodes: list[Any] = []
        self._place: dict[int, int] = {}
        self._held: list[object] = []
        self._later: list[tuple[int, str, object]] = []

    @property
    def mutables(self) -> list[object]:
        """Containers whose contents can change."""
        return [value for _, _, value in self._later]

    def message(self, *roots: object) -> dict[str, Any]:
        """Everything reachable from ``roots``.

        Raises:
            NotPlain: a value that ``export`` refuses.
        """
        for root in roots:
            self._visit(root)
        for place, kind, value in self._later:
            self._nodes[place] = [kind, self._contents(kind, value)]
        return {"roots": [self._value(root) for root in roots], "nodes": self._nodes}

    def _visit(self, root: object) -> None:
        # Mutable containers get their place on the way down, since cycles lead back to them; immutable ones
        # on the way up, so that a reader can build them in order.
        stack: list[tuple[object, bool]] = [(root, False)]
        while stack:
            value, leaving = stack.pop()
            if _is_scalar(value) or id(value) in self._place:
                continue
            kind = self._kind(value)
            if kind in _FILLED:
                self._later.append((self._add(value), kind, value))
                stack += [(one, False) for one in self._children(kind, value) if not _is_scalar(one)]
            elif kind in ("tuple", "frozenset") and not leaving:
                stack.append((value, True))
                stack += [(one, False) for one in self._children(kind, value) if not _is_scalar(one)]
            elif kind in ("tuple", "frozenset"):
                self._nodes[self._add(value)] = [kind, self._contents(kind, value)]
            else:
                self._nodes[self._add(value)] = _leaf(value) or self._export(value)

    def _add(self, value: object) -> int:
        place = self._place[id(value)] = len(self._nodes)
        self._held.append(value)
        self._nodes.append(None)
        return place

    def _kind(self, value: object) -> str:
        if self._classes.get(type(value).__name__) is type(value):
            return "object"
        kind = _KINDS.get(type(value))
        if kind is not None:
            return kind
        return next((kind for base, kind in _CONTAINERS if isinstance(value, base)), "")

    def _children(self, kind: str, value: Any) -> Iterator[object]:
        # Methods of the base, not of a subclass that may have its own.
        if kind == "dict":
            return chain.from_iterable(dict.items(value))
        if kind == "object":
            return iter(_attributes(value).values())
        if kind == "bytearray":
            return iter(())
        base = next(base for base, name in _CONTAINERS if name == kind)
        return base.__iter__(value)  # type: ignore[attr-defined,no-any-return]

    def _contents(self, kind: str, value: Any) -> Any:
        if kind == "bytearray":
            return bytearray.hex(value)
        if kind == "object":
            state = _attributes(value)
            return [type(value).__name__, list(state), [self._value(item) for item in state.values()]]
        contents = [self._value(child) for child in self._children(kind, value)]
        return [value.maxlen, contents] if kind == "deque" else contents

    def _value(self, value: object) -> Any:
        if _is_scalar(value):
            return value
        return [self._place[id(value)]]


def decode(
    message: object,
    imported: Import | None = None,
    classes: Mapping[str, type] | None = None,
    reuse: Sequence[object] = (),
) -> tuple[list[Any], list[object]]:
    """The values of a message, and its mutable containers in order.

    Args:
        message: what ``Encoder.message`` gave, or anything else.
        imported: builds the nodes that an ``export`` made.
        classes: by name, those whose objects may arrive as their attributes.
        reuse: containers to fill again instead of new ones, for roots 1, 2, ...

    Raises:
        BadMessage: it describes no value.
    """
    try:
        return _Decoder(message, imported, classes or {}).run(reuse)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise BadMessage(f"{type(error).__name__}: {error}") from None


class _Decoder:
    def __init__(self, message: Any, imported: Import | None, classes: Mapping[str, type]) -> None:
        self._roots: list[Any] = message["roots"]
        self._nodes: list[Any] = message["nodes"]
        self._imported = imported
        self._classes = classes
        self._built: dict[int, Any] = {}
        self._depth: dict[int, int] = {}

    def run(self, reuse: Sequence[object]) -> tuple[list[Any], list[object]]:
        for number, original in enumerate(reuse, start=1):
            (place,) = self._roots[number]
            shell = self._shell(*self._nodes[place])
            if not isinstance(original, type(shell)):
                raise BadMessage(f"a {type(original).__name__} came back as {type(shell).__name__}")
            self._built[place] = original
        filled = [place for place, (kind, _) in enumerate(self._nodes) if kind in _FILLED]
        for place in filled:
            if place not in self._built:
                self._built[place] = self._shell(*self._nodes[place])
        for place, (kind, payload) in enumerate(self._nodes):
            if kind not in _FILLED:
                self._built[place] = self._immutable(place, kind, payload)
        for place in filled:
            self._fill(self._built[place], *self._nodes[place])
        return [self._value(root) for root in self._roots], [self._built[place] for place in filled]

    def _value(self, value: Any) -> Any:
        return self._built[value[0]] if isinstance(value, list) else value

    def _shell(self, kind: str, payload: Any) -> Any:
        if kind == "object":
            return object.__new__(self._classes[payload[0]])
        if kind == "deque":
            return deque(maxlen=payload[0])
        return {"list": list, "dict": dict, "set": set, "bytearray": bytearray}[kind]()

    def _fill(self, target: Any, kind: str, payload: Any) -> None:
        if kind == "object":
            _set_attributes(target, dict(zip(payload[1], map(self._value, payload[2]), strict=True)))
            return
        if kind == "bytearray":
            target[:] = bytes.fromhex(payload)
            return
        contents = [self._value(item) for item in (payload[1] if kind == "deque" else payload)]
        target.clear()
        if kind == "dict":
            target.update(zip(contents[::2], contents[1::2], strict=True))
        elif kind == "set":
            target.update(contents)
        else:
            target.extend(contents)

    def _immutable(self, place: int, kind: str, payload: Any) -> Any:
        if kind in ("tuple", "frozenset"):
            depth = 1 + max(
                (self._depth.get(item[0], 0) for item in payload if isinstance(item, list)), default=0
            )
            if depth > _DEEPEST:
                raise BadMessage(f"expected at most {_DEEPEST} tuples within each other")
            self._depth[place] = depth
            contents = [self._value(item) for item in payload]
            return tuple(contents) if kind == "tuple" else frozenset(contents)
        if kind in _READERS:
            return _READERS[kind](payload)
        if self._imported is None:
            raise BadMessage(f"unknown kind {kind!r}")
        return self._imported(kind, payload)


_READERS: dict[str, Callable[[Any], object]] = {
    "int": lambda text: int(text, 16),
    "bool": bool,
    "float": float.fromhex,
    "str": str,
    "bytes": bytes.fromhex,
    "complex": lambda pair: complex(float.fromhex(pair[0]), float.fromhex(pair[1])),
    "range": lambda three: range(*three),
    "decimal": lambda text: Decimal(str(text)),
    "fraction": lambda pair: Fraction(int(pair[0], 16), int(pair[1], 16)),
}


def _is_scalar(value: object) -> bool:
    kind = type(value)
    return value is None or kind in (bool, str, float) or (kind is int and -_SMALL < value < _SMALL)  # type: ignore[operator]


def _leaf(value: Any) -> list[Any] | None:
    """Scalars of other types, and subclasses of scalars, as their base."""
    if type(value).__module__ == "numpy" and hasattr(value, "item") and not hasattr(value, "__len__"):
        value = value.item()
    if isinstance(value, bool):
        return ["bool", value]
    if isinstance(value, int):
        return ["int", f"{int.__index__(value):x}"]
    if isinstance(value, float):
        return ["float", float.hex(value)]
    if isinstance(value, str):
        return ["str", str.__str__(value)]
    if isinstance(value, bytes):
        return ["bytes", bytes.hex(value)]
    if isinstance(value, complex):
        return ["complex", [float.hex(value.real), float.hex(value.imag)]]
    if isinstance(value, range):
        return ["range", [value.start, value.stop, value.step]]
    if isinstance(value, Decimal):
        return ["decimal", Decimal.__str__(value)]
    if isinstance(value, Fraction):
        return ["fraction", [f"{value.numerator:x}", f"{value.denominator:x}"]]
    return None


def _slots(kind: type) -> list[str]:
    names: list[str] = []
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else list(slots)
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def _attributes(value: object) -> dict[str, Any]:
    state = dict(vars(value)) if hasattr(value, "__dict__") else {}
    return state | {name: getattr(value, name) for name in _slots(type(value)) if hasattr(value, name)}


def _set_attributes(target: object, state: Mapping[str, Any]) -> None:
    for name in [name for name in _attributes(target) if name not in state]:
        object.__delattr__(target, name)
    for name, value in state.items():
        # An attribute in the place of a method would be called instead of it.
        if name.startswith("__") or callable(getattr(type(target), name, None)):
            raise BadMessage(f"{name} can't be set")
        object.__setattr__(target, name, value)
