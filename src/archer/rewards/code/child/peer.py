"""Calls between the process that holds the program and the one that holds the test, by value where possible.

Arguments and results are copied as plain values (``plain``); containers that the callee changed are changed on
the caller's side too. Other objects stay where they are and are used through ``Remote``.
"""

from __future__ import annotations

import builtins
import operator
import socket
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from . import plain, wire

_OPERATIONS: dict[str, Callable[..., object]] = {
    "attribute": getattr,
    "call": lambda function, arguments, named: function(*arguments, **named),
    "set_attribute": setattr,
    "iterate": iter,
    "next": next,
    "length": len,
    "item": operator.getitem,
    "set_item": operator.setitem,
    "truth": bool,
    "text": str,
    "repr": repr,
    "equal": operator.eq,
    "instance": isinstance,
}


_T = TypeVar("_T")


class ProgramError(Exception):
    """An exception of the program that has no counterpart here, or must not be raised as what it was."""


class Remote:
    """An object of the other process.

    Only what a test may rely on is passed on. A comparison with a value of this side never is: the answer
    would be the word of the program that is being tested. Two remote objects may be compared with each other.
    """

    __slots__ = ("_handle", "_peer")

    def __init__(self, peer: Peer, handle: int) -> None:
        object.__setattr__(self, "_peer", peer)
        object.__setattr__(self, "_handle", handle)

    def __call__(self, *arguments: object, **named: object) -> Any:
        return self._peer.ask("call", self, arguments, named)

    def __getattr__(self, name: str) -> Any:
        return self._peer.ask("attribute", self, name)

    def __setattr__(self, name: str, value: object) -> None:
        self._peer.ask("set_attribute", self, name, value)

    def __iter__(self) -> Any:
        return self._peer.ask("iterate", self)

    def __next__(self) -> Any:
        return self._peer.ask("next", self)

    def __len__(self) -> int:
        return _expect(int, self._peer.ask("length", self))

    def __bool__(self) -> bool:
        return _expect(bool, self._peer.ask("truth", self))

    def __getitem__(self, key: object) -> Any:
        return self._peer.ask("item", self, key)

    def __setitem__(self, key: object, value: object) -> None:
        self._peer.ask("set_item", self, key, value)

    def __str__(self) -> str:
        return _expect(str, self._peer.ask("text", self))

    def __repr__(self) -> str:
        return _expect(str, self._peer.ask("repr", self))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Remote):
            return False
        return self._handle == other._handle or _expect(bool, self._peer.ask("equal", self, other))

    def __hash__(self) -> int:
        return hash(self._handle)

    def __instancecheck__(self, value: object) -> bool:
        return isinstance(value, Remote) and _expect(bool, self._peer.ask("instance", value, self))


class Peer:
    """One end of the channel between the two processes.

    Args:
        channel: to the other end.
        open_to_all: whether the other side may do more with exported objects than call them. The checker must
            not: attributes of a function lead to the test's variables.
    """

    def __init__(self, channel: socket.socket, open_to_all: bool) -> None:
        self._channel = channel
        self._open = open_to_all
        self._exported: list[object] = []
        self._handles: dict[int, int] = {}
        self.classes: Mapping[str, type] = {}
        self.closed = False

    def ask(self, operation: str, *values: object) -> Any:
        """Have the other side do something and give back the result.

        Raises:
            ProgramError, or a built-in exception: what the operation raised there.
            wire.ChannelClosed: the other side has ended.
        """
        encoder = self._encoder()
        self._send(["ask", operation, encoder.message(*values)])
        while True:
            kind, *content = self._receive()
            if kind == "ask":
                self._answer(*content)
            elif kind == "raised":
                raise _exception(operation, *content)
            else:
                break
        try:
            (result, *_), _ = plain.decode(content[0], self._imported, self.classes, encoder.mutables)
        except plain.BadMessage as error:
            raise ProgramError(f"a result that can't be read: {error}") from None
        return result

    def serve(self) -> None:
        """Answer until the other side ends."""
        while True:
            try:
                kind, *content = self._receive()
            except wire.ChannelClosed:
                return
            if kind == "ask":
                self._answer(*content)

    def export(self, value: object) -> list[Any]:
        """The node that stands for an object of this side."""
        if isinstance(value, Remote):
            return ["yours", value._handle]
        if not self._open and not callable(value):
            plain.refuse(value)
        place = self._handles.get(id(value))
        if place is None:
            place = self._handles[id(value)] = len(self._exported)
            self._exported.append(value)
        return ["mine", place]

    def _imported(self, kind: str, payload: Any) -> object:
        if kind == "mine":
            return Remote(self, int(payload))
        if kind == "yours":
            return self._exported[payload]
        raise plain.BadMessage(f"unknown kind {kind!r}")

    def _encoder(self) -> plain.Encoder:
        return plain.Encoder(self.export, self.classes)

    def _receive(self) -> list[Any]:
        try:
            message = wire.receive(self._channel)
            if isinstance(message, list) and message:
                return message
            raise wire.ChannelClosed("no message")
        except wire.ChannelClosed:
            self.closed = True
            raise

    def _send(self, message: object) -> None:
        try:
            wire.send(self._channel, message)
        except wire.ChannelClosed:
            self.closed = True
            raise

    def _answer(self, operation: str, message: object) -> None:
        try:
            values, mutables = plain.decode(message, self._imported, self.classes)
            if operation != "call" and not self._open:
                raise ProgramError(f"{operation} isn't allowed on an object of the test")
            result = _OPERATIONS[operation](*values)
            answer = ["returned", self._encoder().message(result, *mutables)]
        except wire.ChannelClosed:
            raise
        except BaseException as error:  # noqa: BLE001  whatever the called code raises is its result
            answer = ["raised", type(error).__name__, _text(error)]
        self._send(answer)


def _exception(operation: str, name: str, text: str) -> Exception:
    kind = builtins.__dict__.get(str(name))
    ends = kind in (StopIteration, StopAsyncIteration)
    # Raised by a call, the end of an iteration would end the test's own loops early: ``all(map(f, cases))``.
    if ends and operation == "next":
        return StopIteration()
    if isinstance(kind, type) and issubclass(kind, Exception) and not ends:
        try:
            error: Exception = kind(text)
        except TypeError:
            error = ProgramError(f"{name}: {text}")
    else:
        error = ProgramError(f"{name}: {text}")
    error.add_note(OF_PROGRAM)
    return error


OF_PROGRAM = "raised by the program"
"""Note on an exception that came from the program and not from the test."""


def _text(error: BaseException) -> str:
    try:
        return str(error)[:300]
    except BaseException:  # noqa: BLE001  the program's own method
        return ""


def _expect(kind: type[_T], value: object) -> _T:
    if not isinstance(value, kind):
        raise ProgramError(f"expected {kind.__name__}, got {type(value).__name__}")
    return value
