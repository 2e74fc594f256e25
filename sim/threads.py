"""`threading`, and pools of threads, for simulated processes: the names that production modules import.

Locks and conditions work between the fibers of one world; who
waits for one that is held lets virtual time pass. A thread that is woken runs a little later, never at once: who comes
first is up to chance.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from greenlet import getcurrent

from sim.world import THREAD_WAKE_S, Fiber, World


def _world() -> World:
    assert World.current is not None, "no world runs"
    return World.current


class _Waiters:
    """Fibers that wait for the same thing, in their order."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[tuple[Fiber, int, list[bool]]] = deque()

    def wait(self, timeout: float | None) -> bool:
        """Says whether it was woken, and not by the time."""
        world = _world()
        fiber = world.me()
        woken = [False]
        entry = (fiber, fiber.waiting, woken)
        self._queue.append(entry)
        if timeout is not None:
            world.wake(fiber, fiber.waiting, timeout)
        world.wait()
        if not woken[0]:
            with contextlib.suppress(ValueError):
                self._queue.remove(entry)
        return woken[0]

    def wake(self, count: int) -> None:
        world = _world()
        while self._queue and count:
            fiber, wait, woken = self._queue.popleft()
            if not fiber.process.alive:
                continue
            count -= 1
            woken[0] = True
            world.wake(fiber, wait, world.rng.random() * THREAD_WAKE_S)

    def __len__(self) -> int:
        return len(self._queue)


class Lock:
    __slots__ = ("_held", "_waiters")

    def __init__(self) -> None:
        self._held = False
        self._waiters: _Waiters | None = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not self._held:
            self._held = True
            return True
        if not blocking:
            return False
        world = _world()
        deadline = None if timeout < 0 else world.now + timeout
        if self._waiters is None:
            self._waiters = _Waiters()
        while self._held:
            left = None if deadline is None else deadline - world.now
            if left is not None and left <= 0:
                return False
            self._waiters.wait(left)
        self._held = True
        return True

    def release(self) -> None:
        self._held = False
        if self._waiters:
            self._waiters.wake(1)

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class RLock:
    def __init__(self) -> None:
        self._lock = Lock()
        self._owner: object = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = getcurrent()
        if self._owner is me:
            self._depth += 1
            return True
        if self._lock.acquire(blocking, timeout):
            self._owner, self._depth = me, 1
            return True
        return False

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Condition:
    def __init__(self, lock: Lock | RLock | None = None) -> None:
        self._lock = lock or RLock()
        self._waiters = _Waiters()
        self.acquire = self._lock.acquire
        self.release = self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        self._lock.release()
        try:
            return self._waiters.wait(timeout)
        finally:
            if not _world().closing:
                self._lock.acquire()

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        world = _world()
        deadline = None if timeout is None else world.now + timeout
        found = predicate()
        while not found:
            left = None if deadline is None else deadline - world.now
            if left is not None and left <= 0:
                break
            self.wait(left)
            found = predicate()
        return found

    def notify(self, count: int = 1) -> None:
        self._waiters.wake(count)

    def notify_all(self) -> None:
        if self._waiters:
            self._waiters.wake(len(self._waiters))


class Event:
    def __init__(self) -> None:
        self._set = False
        self._waiters = _Waiters()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        if self._waiters:
            self._waiters.wake(len(self._waiters))

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            self._waiters.wait(timeout)
        return self._set


class Thread:
    def __init__(
        self, target: Callable[..., Any], args: tuple[Any, ...] = (), name: str = "", daemon: bool = True
    ) -> None:
        del daemon
        self._target = target
        self._args = args
        self._name = name
        self._ended = Event()

    def start(self) -> None:
        world = _world()
        world.spawn(world.me().process, self._run, self._name, world.rng.random() * THREAD_WAKE_S)

    def _run(self) -> None:
        _world().me().thread = self
        self._target(*self._args)
        self._ended.set()

    def join(self, timeout: float | None = None) -> None:
        self._ended.wait(timeout)

    def is_alive(self) -> bool:
        return not self._ended.is_set()


class Pool:
    """A ThreadPoolExecutor: so many jobs side by side, the others in their order."""

    def __init__(self, count: int, thread_name_prefix: str = "") -> None:
        self._free = count
        self._name = thread_name_prefix
        self._queue: deque[Callable[[], None]] = deque()
        self._closed = False

    def submit(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[Any] = Future()

        def job() -> None:
            try:
                work(*args)
            except Exception as error:
                _world().fail(error)  # nobody asks for the results: whatever is raised is lost in production
            finally:
                self._next()

        if self._free:
            self._free -= 1
            self._start(job)
        else:
            self._queue.append(job)
        return future

    def _start(self, job: Callable[[], None]) -> None:
        world = _world()
        world.spawn(world.me().process, job, self._name, world.rng.random() * THREAD_WAKE_S)

    def _next(self) -> None:
        if _world().closing:
            return
        if self._queue:
            self._start(self._queue.popleft())
        else:
            self._free += 1

    def map(self, work: Callable[..., Any], *iterables: Any) -> Iterator[Any]:
        return map(work, *iterables)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        del wait
        self._closed = True
        if cancel_futures:
            self._queue.clear()


def _ident() -> int:
    fiber = getcurrent()
    return fiber.number if isinstance(fiber, Fiber) else 0


def _current() -> Thread:
    fiber = getcurrent()
    assert isinstance(fiber, Fiber), "only threads ask who they are"
    assert isinstance(fiber.thread, Thread)
    return fiber.thread


threading_names = SimpleNamespace(
    Lock=Lock,
    RLock=RLock,
    Condition=Condition,
    Event=Event,
    Thread=Thread,
    get_ident=_ident,
    current_thread=_current,
)
