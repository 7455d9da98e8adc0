"""The program's side of an assert test: its functions, called from another process."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from .peer import Peer


def serve(channel: socket.socket, namespace: dict[str, Any], classes: Mapping[str, type]) -> None:
    """Offer every name of ``namespace`` until the checker ends.

    Args:
        channel: to the checker.
        namespace: of the program.
        classes: of the setup code; the program may have defined them again.
    """
    peer = Peer(channel, open_to_all=True)
    current = {name: namespace.get(name) for name in classes}
    peer.classes = {name: kind for name, kind in current.items() if isinstance(kind, type)}

    def lookup(name: str) -> object:
        return namespace[name]

    # The checker knows this object by its handle, 0, and everything else through it.
    peer.export(lookup)
    peer.serve()
