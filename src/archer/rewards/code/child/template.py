"""The warm interpreter that every test's process is forked from.

It never sees a program, an input or a test: they go straight from the parent to the process that needs them,
so that nothing of one test is in the memory of the next. It only forks.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys

from . import confine, kernel, runs, supervise, wire

_LARGEST_REQUEST = 65536
_MOST_DESCRIPTORS = 8


def main(descriptor: int, settings: str) -> None:
    """Serve requests on the socket ``descriptor`` until its other end closes.

    Args:
        descriptor: of a stream socket.
        settings: JSON with the fields of ``confine.Setting``, and ``user`` and ``unshare``: become that
            user in each test, and leave the network without help.
    """
    channel = socket.socket(fileno=descriptor)
    options = json.loads(settings)
    user, unshare = options.pop("user"), options.pop("unshare")
    setting = confine.Setting(**options)
    runs.warm(setting.site, setting.packages)
    network = setting.private_root or (unshare and _network())
    features = confine.find_features(setting, network, user)
    base_memory = confine.mapped_memory()
    wire.send(channel, features.to_json())
    # Ended supervisors need no one to wait for them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    while True:
        data, descriptors, _, _ = socket.recv_fds(channel, _LARGEST_REQUEST, _MOST_DESCRIPTORS)
        if not data:
            return
        answer = b"+"
        try:
            pid = os.fork()
        except OSError:
            pid, answer = -1, b"-"
        if pid == 0:
            channel.close()
            supervise.supervise(setting, features, base_memory, json.loads(data), descriptors)
        for one in descriptors:
            os.close(one)
        channel.sendall(answer)


def _network() -> bool:
    """Leave the network, and become able to make namespaces, where no other tool has done so."""
    if not kernel.LINUX or not confine.works(_leave_network):
        return False
    _leave_network()
    return True


def _leave_network() -> None:
    user, group = os.getuid(), os.getgid()
    flags = kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC
    kernel.unshare(flags | (kernel.CLONE_NEWUSER if user else 0))
    if user:
        maps = {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
        for name, text in maps.items():
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    kernel.mount("none", "/", "none", kernel.MS_REC | kernel.MS_PRIVATE)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
