"""Messages on a stream socket: four bytes of length, then JSON in ASCII."""

import json
import socket
import struct
from typing import Any

HEAD = struct.Struct(">I")
# A peer that is not trusted can't make the reader hold more than this.
LARGEST = 64 * 1024 * 1024


class ChannelClosed(Exception):
    """The other side has ended, or sent something that is no message."""


def pack(message: object) -> bytes:
    """One message as bytes."""
    body = json.dumps(message, separators=(",", ":")).encode("ascii")
    return HEAD.pack(len(body)) + body


def send(channel: socket.socket, message: object) -> None:
    """Send one message.

    Raises:
        ChannelClosed: nobody reads any more.
    """
    try:
        channel.sendall(pack(message))
    except OSError as error:
        raise ChannelClosed(str(error)) from None


def receive(channel: socket.socket) -> Any:
    """The next message.

    Raises:
        ChannelClosed: the stream ended, or the bytes are no message.
    """
    (length,) = HEAD.unpack(_exactly(channel, HEAD.size))
    if length > LARGEST:
        raise ChannelClosed(f"expected at most {LARGEST} bytes, got {length}")
    try:
        return json.loads(_exactly(channel, length))
    except (ValueError, RecursionError) as error:
        raise ChannelClosed(f"expected JSON: {type(error).__name__}") from None


def unpack_all(data: bytes) -> list[Any]:
    """Every whole message in ``data``; reading stops at the first that is none."""
    messages = []
    place = 0
    while place + HEAD.size <= len(data):
        (length,) = HEAD.unpack_from(data, place)
        body = data[place + HEAD.size : place + HEAD.size + length]
        if len(body) < length:
            break
        try:
            messages.append(json.loads(body))
        except (ValueError, RecursionError):
            break
        place += HEAD.size + length
    return messages


def _exactly(channel: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        try:
            part = channel.recv(min(count - len(data), 1 << 20))
        except OSError as error:
            raise ChannelClosed(str(error)) from None
        if not part:
            raise ChannelClosed("end of stream")
        data += part
    return bytes(data)
