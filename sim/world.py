"""Time, chance and who runs next: one heap of events, one source of chance, one trace.

Everything that happens is an event at a virtual time; events of one time happen in the order in which they were made.
Processes have a loop and threads, all of them *fibers* of one real thread: a fiber runs until it waits, and while it
waits virtual time passes. So code that blocks on locks, disks and peers runs as it is, and every run of one seed is the
same run.

A process that is killed never runs again; one that is paused runs on later, and does not know that it was.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from typing import IO, Any

from greenlet import GreenletExit, getcurrent, greenlet

BEGINNING_US = 1_700_000_000_000_000
THREAD_WAKE_S = 0.0002  # at most, before a thread that was woken runs


class Violated(AssertionError):
    """A claim does not hold."""


class Fiber(greenlet):  # type: ignore[misc]
    """A thread of a simulated process."""

    process: Process
    number: int
    name: str
    waiting: int  # counts its waits: a waking for an earlier one is void
    over: bool
    thread: object = None  # what production knows it by


class World:
    """One run."""

    current: World | None = None  # whose fibers run now

    def __init__(self, seed: int, trace: IO[str] | None = None) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.events = 0  # messages, timers, wakings and faults
        self.counts: Counter[str] = Counter()
        self.failure: BaseException | None = None
        self.closing = False
        self.processes: list[Process] = []
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._made = 0
        self._fibers = 0
        self._hub: greenlet = getcurrent()
        self._trace = trace
        self._digest = blake2b(digest_size=16)

    # --- time ----------------------------------------------------------------------------------------------------

    def at(self, when: float, call: Callable[[], None]) -> None:
        self._made += 1
        heapq.heappush(self._heap, (when, self._made, call))

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        self._made += 1
        heapq.heappush(self._heap, (self.now + seconds, self._made, call))

    def run(self, done: Callable[[], bool], until: float = float("inf")) -> bool:
        """Let things happen until `done`, or until that time. Says whether it is done."""
        heap = self._heap
        while heap and self.failure is None:
            if done():
                return True
            when, _, call = heapq.heappop(heap)
            if when > until:
                self.at(when, call)
                return done()
            self.now = max(self.now, when)
            call()
        if self.failure is not None:
            raise self.failure
        return done()

    def nanoseconds(self) -> int:
        return int(self.now * 1e9)

    def now_us(self) -> int:
        return BEGINNING_US + int(self.now * 1e6)

    # --- the trace -----------------------------------------------------------------------------------------------

    def tell(self, who: str, what: str) -> None:
        """One line of the trace. It must say nothing that differs between two runs of a seed."""
        self.events += 1
        line = f"{self.now:.6f} {who} {what}\n"
        self._digest.update(line.encode())
        if self._trace is not None:
            self._trace.write(line)

    @property
    def digest(self) -> str:
        """Of the whole trace so far."""
        return self._digest.hexdigest()

    def fail(self, error: BaseException) -> None:
        """End the run: `run` raises this."""
        if self.failure is None:
            self.failure = error

    # --- fibers --------------------------------------------------------------------------------------------------

    def spawn(self, process: Process, work: Callable[[], Any], name: str, delay_s: float = 0.0) -> Fiber:
        self._fibers += 1

        def body() -> None:
            try:
                work()
            except GreenletExit:
                pass
            except BaseException as error:  # a thread that dies of an error is a finding
                self.fail(error)
            finally:
                fiber.over = True

        fiber = Fiber(body, self._hub)
        fiber.process, fiber.number, fiber.name, fiber.waiting, fiber.over = process, self._fibers, name, 0, False
        process.fibers.append(fiber)
        self.after(delay_s, lambda: self._switch(fiber, 0))
        return fiber

    def wake(self, fiber: Fiber, wait: int, delay_s: float = 0.0) -> None:
        """Let a fiber run on that waits, unless it waits for something else by then."""
        self.after(delay_s, lambda: self._switch(fiber, wait))

    def wait(self) -> None:
        """The fiber that calls this stops here until it is woken."""
        fiber = getcurrent()
        if self.closing:
            raise GreenletExit
        assert isinstance(fiber, Fiber), "only fibers wait"
        self._hub.switch()

    def sleep(self, seconds: float) -> None:
        fiber = self.me()
        self.wake(fiber, fiber.waiting, seconds)
        self.wait()

    def me(self) -> Fiber:
        fiber = getcurrent()
        assert isinstance(fiber, Fiber), "only fibers wait"
        return fiber

    def _switch(self, fiber: Fiber, wait: int) -> None:
        process = fiber.process
        if fiber.waiting != wait or fiber.over or not process.alive:
            return
        if process.paused:
            process.deferred.append(lambda: self._switch(fiber, wait))
            return
        fiber.waiting += 1
        process.enter()
        fiber.switch()
        process.leave()

    def close(self) -> None:
        """Unwind whoever still waits."""
        self.closing = True
        for process in self.processes:
            for fiber in process.fibers:
                if fiber and not fiber.over:
                    process.enter()
                    fiber.throw(GreenletExit)
                    process.leave()
            process.fibers.clear()
        self._heap.clear()


class Process:
    """One process of the cluster: alive, paused or killed. `host` is what the network knows it by."""

    def __init__(self, world: World, host: str) -> None:
        from sim.loop import Loop

        self.world = world
        self.host = host
        self.alive = True
        self.paused = False
        self.deferred: list[Callable[[], None]] = []
        self.fibers: list[Fiber] = []
        self.skew_us = world.rng.randrange(-40_000, 40_000)  # of its clock on the wall
        self.on_kill: list[Callable[[bool], None]] = []
        self.loop = Loop(self)  # type: ignore[abstract]
        self.loop.start()
        world.processes.append(self)

    def enter(self) -> None:
        self.loop.enter()

    def leave(self) -> None:
        self.loop.leave()

    def kill(self, *, silently: bool = False) -> None:
        """With `silently` its machine went away too: nobody is told that its connections are gone."""
        if self.alive:
            self.alive = False
            for call in self.on_kill:
                call(silently)

    def pause(self, seconds: float) -> None:
        if not self.paused and self.alive:
            self.paused = True
            self.world.after(seconds, self._resume)

    def _resume(self) -> None:
        self.paused = False
        deferred, self.deferred = self.deferred, []
        for call in deferred:
            self.world.after(0.0, call)

    # --- its clock, as embedded.clock.Clock ----------------------------------------------------------------------

    def now_us(self) -> int:
        return self.world.now_us() + self.skew_us

    def monotonic_s(self) -> float:
        return self.world.now
