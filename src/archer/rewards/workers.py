"""A pool of killable worker processes behind futures."""

from __future__ import annotations

import pickle
import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass

from archer.rewards.process import Reply, WorkerFault, WorkerProcess, WorkerSpec

# A fresh process may do better after these: the fault can lie in the machine or in what came before. CPU time
# does not depend on how busy the machine is.
_RETRIED = {"killed", "memory", "wall_time"}
# After these the process that answered is still sound.
_SURVIVED = {"raised", "cpu_time"}


@dataclass(slots=True)
class _Task:
    request: bytes | None
    future: Future[Reply]


class WorkerPool:
    """Runs requests on worker processes, one at a time on each, and replaces processes that die.

    Usable from any thread and from asyncio (``asyncio.wrap_future``). A request whose process dies is tried
    again on a fresh one; the others in the queue never notice.

    Args:
        spec: what the workers run and their limits.
        workers: number of processes; each starts when there is work that no idle one could take.
        queue_size: requests that may wait; ``submit`` blocks beyond it.
        retries: extra tries after a killed process, the memory limit or the wall limit.
        requests_per_worker: a process is replaced after this many, which bounds what libraries cache.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        *,
        workers: int = 2,
        queue_size: int = 16384,
        retries: int = 1,
        requests_per_worker: int = 20000,
    ) -> None:
        self._spec = spec
        self._workers = workers
        self._queue_size = queue_size
        self._retries = retries
        self._requests_per_worker = requests_per_worker
        self._waiting: deque[_Task] = deque()
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._threads: list[threading.Thread] = []
        self._living: set[WorkerProcess] = set()
        self._idle = 0
        self._closed = False

    def submit(self, request: object) -> Future[Reply]:
        """Queue one picklable request; the future holds a ``Reply`` or raises ``WorkerFault``.

        Raises:
            WorkerFault: ``closed``.
        """
        return self._enqueue(_Task(pickle.dumps(request), Future()))

    def warm(self) -> None:
        """Wait until one process has started.

        Raises:
            WorkerFault: ``start``, with what the process said.
        """
        self._enqueue(_Task(None, Future())).result()

    def _enqueue(self, task: _Task) -> Future[Reply]:
        with self._lock:
            while len(self._waiting) >= self._queue_size and not self._closed:
                self._room.wait()
            if self._closed:
                raise WorkerFault("closed", "the pool is closed")
            self._waiting.append(task)
            if len(self._waiting) > self._idle and len(self._threads) < self._workers:
                thread = threading.Thread(target=self._run, name="archer-worker", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._work.notify()
        return task.future

    def close(self) -> None:
        """Kill and reap the processes. Requests without an answer get ``WorkerFault("closed")``."""
        with self._lock:
            self._closed = True
            left = list(self._waiting)
            self._waiting.clear()
            living = list(self._living)
            self._work.notify_all()
            self._room.notify_all()
        for process in living:
            process.interrupt()
        for task in left:
            _fail(task, WorkerFault("closed", "the pool was closed before this request ran"))
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        process: WorkerProcess | None = None
        served = 0
        try:
            while task := self._next():
                if process is not None and served >= self._requests_per_worker:
                    self._retire(process)
                    process = None
                process, served = self._serve(task, process, served)
        finally:
            if process is not None:
                self._retire(process)

    def _next(self) -> _Task | None:
        with self._lock:
            self._idle += 1
            while not self._waiting and not self._closed:
                self._work.wait()
            self._idle -= 1
            if self._closed:
                return None
            self._room.notify()
            return self._waiting.popleft()

    def _serve(
        self, task: _Task, process: WorkerProcess | None, served: int
    ) -> tuple[WorkerProcess | None, int]:
        """Answer one task; returns the process to go on with and how many requests it has served."""
        if not task.future.set_running_or_notify_cancel():
            return process, served
        for left in range(self._retries, -1, -1):
            try:
                if process is None:
                    process, served = self._start(), 0
                served += 1
                reply = Reply(None, 0.0) if task.request is None else process.ask(task.request)
            except WorkerFault as fault:
                if process is not None and (fault.kind not in _SURVIVED or not process.alive):
                    self._retire(process)
                    process = None
                if self._closed:
                    fault = WorkerFault("closed", "the pool was closed while this request ran")
                elif left and fault.kind in _RETRIED:
                    continue
                task.future.set_exception(fault)
            else:
                task.future.set_result(reply)
            break
        return process, served

    def _start(self) -> WorkerProcess:
        try:
            process = WorkerProcess(self._spec)
        except OSError as error:
            raise WorkerFault("start", f"the operating system refused a new process: {error}") from error
        with self._lock:
            self._living.add(process)
            closed = self._closed
        try:
            if closed:
                raise WorkerFault("closed", "the pool is closed")
            process.start()
        except WorkerFault:
            self._retire(process)
            raise
        return process

    def _retire(self, process: WorkerProcess) -> None:
        process.kill()
        with self._lock:
            self._living.discard(process)


def _fail(task: _Task, fault: WorkerFault) -> None:
    if task.future.set_running_or_notify_cancel():
        task.future.set_exception(fault)
