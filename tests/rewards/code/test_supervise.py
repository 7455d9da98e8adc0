"""The supervisor where the end of a process can't be waited for with a time limit."""

import os
import socket
import time

import pytest

from archer.rewards.code.child import confine, supervise


def watched(monkeypatch, work, **changes):
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    limits = {
        "cpu_seconds": 5.0,
        "wall_seconds": 5.0,
        "memory": 0,
        "file_bytes": 0,
        "open_files": 0,
        "threads": 0,
    }
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pid = os.fork()
        if pid == 0:
            os.setsid()
            try:
                work()
            finally:
                os._exit(3)
        if changes.pop("abort", False):
            ours.send(b"x")
        report = supervise._watch(pid, confine.Limits(**(limits | changes)), time.monotonic(), theirs)
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    return report["exit"], report["signal"], report["killed"]


def spin():
    while True:
        pass


def test_an_end_is_noticed_by_asking(monkeypatch):
    assert watched(monkeypatch, lambda: None) == (3, None, "")
    assert watched(monkeypatch, lambda: time.sleep(0.1)) == (3, None, "")
    assert watched(monkeypatch, lambda: os.kill(os.getpid(), 15)) == (None, 15, "")


def test_limits_are_kept_by_asking(monkeypatch):
    assert watched(monkeypatch, lambda: time.sleep(60), wall_seconds=0.2) == (None, 9, "wall")
    assert watched(monkeypatch, lambda: time.sleep(60), abort=True) == (None, 9, "abort")


@pytest.mark.skipif(not confine.kernel.LINUX, reason="the clock of another process is Linux")
def test_cpu_time_is_kept_by_asking(monkeypatch):
    assert watched(monkeypatch, spin, cpu_seconds=0.1) == (None, 9, "cpu")
