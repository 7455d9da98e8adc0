"""The pool: nothing leaks, faults are retried, a broken harness stops, isolation is had or refused."""

import mmap
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from archer.configs.code import CodeConfig
from archer.errors import ConfigError, IsolationError, RewardError
from archer.rewards.code import CodeRunner, canary, isolation, probe_isolation, runner
from archer.rewards.code.bay import Bay, SandboxFault

ECHO = {"type": "stdin", "input": "5\n", "output": "5\n"}
PLUS = {"type": "assert", "code": "assert f(1) == 2"}
pytestmark = pytest.mark.filterwarnings("ignore:programs of the model run")


def descendants(pid):
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = (int(fields[1]), fields[0])
    found, front = {}, {pid}
    while front:
        front = {child for child, (parent, _) in parents.items() if parent in front}
        found |= {child: parents[child][1] for child in front}
    return found


def open_files():
    return sorted(os.listdir("/proc/self/fd"))


def wait_until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def leak_check(runs, level):
    before_files, before = open_files(), descendants(os.getpid())
    config = CodeConfig(
        isolation=level,
        workers=2,
        cpu_seconds=0.2,
        sample_cpu_seconds=0.2,
        wall_seconds=5.0,
        canary_every=10**6,
    )
    with CodeRunner(config) as pool:
        with ThreadPoolExecutor(2) as threads:
            warm = list(threads.map(lambda _: pool.run("print(input())", [ECHO]), range(4)))
        files, processes = open_files(), set(descendants(os.getpid()))
        with ThreadPoolExecutor(2) as threads:
            results = list(threads.map(lambda _: pool.run("while True: pass", [ECHO]), range(runs)))
        assert {one.tests[0].label for one in results} == {"time_limit"}
        assert wait_until(lambda: set(descendants(os.getpid())) <= processes)
        assert "Z" not in descendants(os.getpid()).values()
        assert open_files() == files
        assert all(one.passed == 1 for one in [*warm, pool.run("print(input())", [ECHO])])
    assert wait_until(lambda: descendants(os.getpid()) == before)
    assert open_files() == before_files


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
@pytest.mark.parametrize("level", ["auto", "rlimits"])
def test_no_process_and_no_descriptor_is_left(level):
    leak_check(6, level)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_no_process_and_no_descriptor_is_left_by_200_endless_programs():
    leak_check(200, "auto")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
@pytest.mark.parametrize("level", ["auto", "rlimits"])
def test_everything_ends_with_its_parent(level):
    program = (
        "import sys, warnings; warnings.simplefilter('ignore')\n"
        "from archer.configs.code import CodeConfig\nfrom archer.rewards.code import CodeRunner\n"
        f"pool = CodeRunner(CodeConfig(isolation={level!r}, workers=1))\nprint('ready', flush=True)\ninput()\n"
        "pool.run('import time; time.sleep(1000)', [{'type': 'stdin', 'input': '', 'output': ''}])"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    )
    assert parent.stdout.readline() == b"ready\n"
    # The supervisor and the program appear beside what is there when the last canary is gone.
    time.sleep(0.5)
    count = len(descendants(parent.pid))
    parent.stdin.write(b"go\n")
    parent.stdin.flush()
    assert wait_until(lambda: len(descendants(parent.pid)) > count)
    time.sleep(0.3)
    left = set(descendants(parent.pid))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    parent.stdin.close()
    alive = lambda: [pid for pid in left if Path(f"/proc/{pid}").exists()]  # noqa: E731
    assert wait_until(lambda: not alive()), alive()


def test_the_same_verdict_with_many_workers_a_core():
    # A right program of some CPU time, alone and in a crowd; limited by CPU time, it passes in both.
    program = "import time\nwhile time.process_time() < 0.3: pass\nprint(input())"
    workers = 4 * len(os.sched_getaffinity(0))
    config = CodeConfig(workers=workers, cpu_seconds=0.6, sample_cpu_seconds=0.6, wall_seconds=30.0)
    with CodeRunner(config) as pool, ThreadPoolExecutor(workers) as threads:
        alone = pool.run(program, [ECHO])
        crowd = list(threads.map(lambda _: pool.run(program, [ECHO]), range(workers)))
    assert {one.tests[0].label for one in [alone, *crowd]} == {"passed"}


def test_a_big_parent_changes_nothing():
    with (
        mmap.mmap(-1, 4 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000),
        CodeRunner(CodeConfig(workers=1, memory_mb=512)) as pool,
    ):
        assert pool.run("import numpy; print(5)", [ECHO]).passed == 1


def test_a_killed_sandbox_is_replaced_and_the_program_tried_again():
    with CodeRunner(CodeConfig(workers=1)) as pool:
        for test, program in ((ECHO, "print(input())"), (PLUS, "def f(x): return x + 1")):
            bay = pool._free.get()
            bay._process.kill()
            bay._process.wait()
            pool._free.put(bay)
            assert pool.run(program, [test]).passed == 1


def test_a_fault_that_stays_makes_a_program_unscorable(monkeypatch):
    tries = []

    def fail(*_):
        tries.append(1)
        raise SandboxFault("the connection is gone")

    with CodeRunner(CodeConfig(workers=1, retries=2)) as pool:
        with monkeypatch.context() as patch:
            patch.setattr(runner, "judge", fail)
            result = pool.run("print(input())", [ECHO, ECHO])
        assert (result.tests[0].label, len(tries), result.scorable) == ("harness_error", 3, False)
        assert "the connection is gone" in result.tests[0].detail
        assert pool.run("print(input())", [ECHO]).passed == 1


def test_a_fault_that_passes_is_not_seen(monkeypatch):
    judge, tries = runner.judge, []

    def fail_once(*arguments):
        tries.append(1)
        if len(tries) == 1:
            raise SandboxFault("the connection is gone")
        return judge(*arguments)

    with CodeRunner(CodeConfig(workers=1)) as pool:
        monkeypatch.setattr(runner, "judge", fail_once)
        assert pool.run("print(input())", [ECHO]).passed == 1
    assert len(tries) == 2


def test_no_program_is_run_where_a_canary_fails(monkeypatch):
    wrong = canary.Sample("a canary", "print(6)", ECHO, "passed")
    monkeypatch.setattr(canary, "SAMPLES", (wrong,))
    with pytest.raises(RewardError, match="broken: a canary must be passed, got wrong_answer"):
        CodeRunner(CodeConfig(workers=1))


def test_a_canary_that_fails_later_stops_all_further_runs(monkeypatch):
    with CodeRunner(CodeConfig(workers=1, canary_every=3)) as pool:
        wrong = canary.Sample("a canary", "print(6)", ECHO, "passed")
        monkeypatch.setattr(canary, "SAMPLES", (wrong,))
        assert [pool.run("print(input())", [ECHO]).passed for _ in range(2)] == [1, 1]
        for _ in range(2):
            with pytest.raises(RewardError, match="broken"):
                pool.run("print(input())", [ECHO])


def test_isolation_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(isolation.shutil, "which", lambda _: None)
    with pytest.raises(IsolationError, match=r"bubblewrap.*install the package bubblewrap"):
        CodeRunner(CodeConfig(isolation="bubblewrap"))
    with pytest.warns(UserWarning, match="no bubblewrap"):
        pool = CodeRunner(CodeConfig(workers=1))
    with pool:
        assert pool.isolation.level == "rlimits"
        assert pool.run("print(input())", [ECHO]).passed == 1
    report = probe_isolation()
    assert report.level == "rlimits"
    assert "bwrap" in report.refused["bubblewrap"]


def test_a_tool_that_does_not_work_is_no_isolation(monkeypatch, tmp_path):
    tool = tmp_path / "bwrap"
    tool.write_text("#!/bin/sh\necho 'No permissions to create a new namespace' >&2\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setattr(isolation.shutil, "which", lambda _: str(tool))
    with pytest.raises(
        IsolationError, match=r"No permissions to create a new namespace|the kernel refuses one"
    ):
        CodeRunner(CodeConfig(isolation="bubblewrap"))


def test_what_nothing_prevents_is_said_aloud(monkeypatch):
    def without_filter(bay_features):
        return {**bay_features, "network": False, "seccomp": False, "namespaces": False}

    real = Bay.__init__

    def patched(self, plan):
        real(self, plan)
        self.features = type(self.features)(**without_filter(self.features.to_json()))

    monkeypatch.setattr(Bay, "__init__", patched)
    with pytest.warns(UserWarning, match="nothing prevents: network, other processes"):
        CodeRunner(CodeConfig(isolation="rlimits", workers=1)).close()


def test_the_report_names_every_guard():
    report = probe_isolation()
    assert set(report.guards) >= {"network", "survivors", "changing files", "reading files", "fork bombs"}
    assert all(name in str(report) for name in report.guards)
    assert report.gaps == tuple(name for name, guard in report.guards.items() if not guard)


def test_packages_that_are_not_installed_are_named():
    with pytest.raises(ConfigError, match="no_such_package"):
        CodeRunner(CodeConfig(packages=("no_such_package",)))


def test_a_fork_may_not_use_its_parents_runner():
    with CodeRunner(CodeConfig(workers=1)) as pool:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                pool.run("print(input())", [ECHO])
            except RewardError:
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        assert pool.run("print(input())", [ECHO]).passed == 1
