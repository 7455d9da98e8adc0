"""The pool of worker processes: limits hold, nothing is lost, nothing is left behind."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psutil
import pytest

from archer.rewards.process import WorkerFault, WorkerSpec
from archer.rewards.workers import WorkerPool

HANDLERS = """
import os, signal, subprocess, sys, time

def make_handler(fail=False, marker=""):
    if fail:
        raise RuntimeError("no such model")
    def handle(request):
        match request:
            case "spin":
                while True:
                    pass
            case "stubborn":
                while True:
                    try:
                        while True:
                            pass
                    except BaseException:
                        pass
            case "big power":
                return len(str(pow(7, 10**9)))
            case "sleep":
                time.sleep(60)
            case "memory":
                return len(bytearray(10**11))
            case "die":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "die once":
                if not os.path.exists(marker):
                    open(marker, "w").close()
                    os._exit(3)
                return "second try"
            case "child":
                return subprocess.Popen(["sleep", "300"]).pid
            case "print":
                print("noise on standard output")
                os.write(1, b"more noise")
                return "quiet"
            case "stdin":
                return sys.stdin.read()
            case "modules":
                return sorted({"torch", "transformers", "pydantic"} & set(sys.modules))
            case "pid":
                return os.getpid()
            case "raise":
                raise KeyError("missing")
        return request
    return handle
"""


@pytest.fixture
def spec(tmp_path, monkeypatch):
    (tmp_path / "handlers_for_test.py").write_text(HANDLERS)
    monkeypatch.syspath_prepend(tmp_path)
    return WorkerSpec(
        "handlers_for_test:make_handler",
        wall_seconds=2.0,
        cpu_seconds=0.3,
        memory_mb=512,
        settings={"marker": str(tmp_path / "marker")},
    )


@pytest.fixture
def pool(spec):
    pool = WorkerPool(spec, workers=2)
    yield pool
    pool.close()


def fault(pool, request):
    with pytest.raises(WorkerFault) as caught:
        pool.submit(request).result(30)
    return caught.value


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        ("spin", "cpu_time"),
        ("stubborn", "cpu_time"),
        ("big power", "cpu_time"),
        ("memory", "memory"),
        ("die", "killed"),
        ("raise", "raised"),
    ],
)
def test_each_failure_has_its_own_label_and_the_pool_goes_on(pool, request_, kind):
    assert fault(pool, request_).kind == kind
    assert pool.submit("next").result(30).value == "next"


def test_a_sleeping_handler_meets_the_wall_limit(spec):
    pool = WorkerPool(replace(spec, wall_seconds=0.3), workers=1, retries=0)
    assert fault(pool, "sleep").kind == "wall_time"
    assert pool.submit("next").result(30).value == "next"
    pool.close()


def test_a_sample_whose_worker_dies_is_tried_again(pool):
    assert pool.submit("die once").result(30).value == "second try"


def test_others_keep_their_answers_and_order_while_workers_die(pool):
    requests = [("die" if i % 10 == 3 else i) for i in range(40)]
    futures = [pool.submit(r) for r in requests]
    got = [f.exception(60).kind if f.exception(60) else f.result().value for f in futures]
    assert got == [("killed" if r == "die" else r) for r in requests]


def test_limits_hold_off_the_main_thread(pool):
    with ThreadPoolExecutor(2) as threads:
        assert threads.submit(fault, pool, "spin").result(30).kind == "cpu_time"


def test_prints_and_stdin_do_not_disturb_the_replies(pool):
    assert pool.submit("print").result(30).value == "quiet"
    assert pool.submit("stdin").result(30).value == ""


def test_workers_load_no_framework(pool):
    assert pool.submit("modules").result(30).value == []


def test_a_handler_that_cannot_be_made_says_why(spec):
    pool = WorkerPool(replace(spec, settings={"fail": True}), workers=1)
    caught = fault(pool, 1)
    assert caught.kind == "start"
    assert "no such model" in caught.detail
    with pytest.raises(WorkerFault, match="no such model"):
        pool.warm()
    pool.close()


def test_a_worker_is_replaced_after_its_share_of_requests(spec):
    pool = WorkerPool(spec, workers=1, requests_per_worker=3)
    pids = [pool.submit("pid").result(30).value for _ in range(7)]
    assert [len(set(pids[a:b])) for a, b in ((0, 3), (3, 6), (6, 7))] == [1, 1, 1]
    assert len(set(pids)) == 3
    pool.close()


def test_closing_answers_what_waits_and_kills_what_runs(spec):
    pool = WorkerPool(replace(spec, wall_seconds=60.0), workers=1)
    running, waiting = pool.submit("sleep"), pool.submit("pid")
    while not running.running():
        time.sleep(0.01)
    pool.close()
    assert running.exception(5).kind == waiting.exception(5).kind == "closed"
    with pytest.raises(WorkerFault, match="closed"):
        pool.submit("late")


def test_a_full_queue_makes_submit_wait(spec):
    pool = WorkerPool(spec, workers=1, queue_size=1)
    first = pool.submit("spin")
    while not first.running():
        time.sleep(0.01)
    pool.submit("waits")
    blocked = threading.Thread(target=pool.submit, args=("blocked",))
    blocked.start()
    assert blocked.is_alive()
    assert first.exception(30).kind == "cpu_time"
    blocked.join(30)
    assert not blocked.is_alive()
    pool.close()


def test_no_process_zombie_or_descriptor_is_left(spec):
    me = psutil.Process()
    children, descriptors = set(me.children(recursive=True)), me.num_fds()
    pool = WorkerPool(spec, workers=2)
    grandchild = pool.submit("child").result(30).value
    faults = [pool.submit("stubborn" if i % 2 else "die") for i in range(12)]
    assert {f.exception(60).kind for f in faults} == {"cpu_time", "killed"}
    pool.close()
    assert set(me.children(recursive=True)) <= children
    assert not psutil.pid_exists(grandchild) or psutil.Process(grandchild).status() == psutil.STATUS_ZOMBIE
    assert me.num_fds() == descriptors
