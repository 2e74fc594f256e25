"""The demo: production alone, then beside three agents on forks. A bad write is caught, a good one promoted.

Every number is measured as it happens, and every claim is checked: one that does not hold ends the demo with an error.
"""

from __future__ import annotations

import time
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, TypeVar

from braidlog.agents import Access, Audit, Desk, Policy, Registry
from braidlog.cli.demo import agents, questions, sparking
from braidlog.cli.demo.hands import CHECK, Hands, median_us
from braidlog.cli.demo.market import Production
from braidlog.cli.demo.outcome import Attempt, Outcome
from braidlog.cli.demo.pacing import PATIENCE_S, Pace, Stopped
from braidlog.cli.demo.shop import Shop
from braidlog.cli.demo.trade import SKUS, Mispriced, Trade
from braidlog.cli.failures import Refused

if TYPE_CHECKING:
    from braidlog import Braid, Log
    from braidlog.cli.demo.board import Board

T = TypeVar("T")

ALONE_S: Final = 4.0
AFTER_S: Final = 2.0
_AT_LEAST_ORDERS: Final = 100  # before agents come, however fast the story is told
_READ_RECORDS: Final = 5_000


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How it is told."""

    seed: int
    pace: Pace
    past: int = 20_000  # orders that are there in the beginning
    spark: bool | None = None  # None: if it can run, and is quick enough


class Story:
    """One telling. `run` may be called once; whoever shows it may look at the rest meanwhile, from another thread."""

    def __init__(self, braid: Braid, access: Access, board: Board, setting: Setting) -> None:
        self.braid = braid
        self.setting = setting
        self.board = board
        self.production: Production | None = None
        self.alone_from = self.agents_from = self.agents_until = 0.0
        self._access = access
        self._pace = setting.pace
        self._audit = Audit(braid)
        self._trade = Trade(setting.seed, setting.past)
        self._hands: list[Hands] = []
        self._no_spark = ""

    def run(self) -> Outcome:
        """Tell it, and return what was measured. If it ends before its time it leaves no fork behind."""
        try:
            return self._tell()
        except BaseException:
            for hands in self._hands:
                hands.leave()
            raise

    def _tell(self) -> Outcome:
        name = _free_name(self.braid)
        self.board.say("demo", f"seed {self.setting.seed}; the agents are scripted, no model is asked")
        log = self.braid.create(name)
        Registry(self.braid).add(f"{name}.stock", CHECK, logs=name)
        with ExitStack() as ended:
            production = self.production = Production(log, self._trade)
            ended.callback(production.stop)
            ended.callback(self._audit.close)
            self._alone(production)
            spark = self._start_spark(ended)
            restocker = self._restocker(production, spark)
            found, tested, (caught, promoted) = self._together(production, restocker)
            self.agents_until = time.perf_counter()
            self._check_agents(found, tested, caught, promoted)
            waiting = agents.leave_for_review(
                self._hands[-1], Desk(self.braid, Policy.default(), access=self._access, audit=self._audit)
            )
            self._require(waiting.state == "waiting", "the last proposal waits for a person")
            self._pace.pause(AFTER_S)
            self._check_production(production, log, promoted)
        crew = self._hands
        return Outcome(
            seed=self.setting.seed,
            log=name,
            seconds=self.board.seconds,
            alone=production.latency(self.alone_from, self.agents_from),
            beside_agents=production.latency(self.agents_from, self.agents_until),
            forks=sum(len(hands.fork_us) for hands in crew),
            fork_p50_us=median_us(crew),
            engine=questions.engine(),
            mispriced=found,
            tested=tested,
            caught=caught,
            promoted=promoted,
            spark=restocker.check,
            no_spark=self._no_spark or restocker.no_spark,
            waiting=waiting.id,
            read_orders=production.consumer.shop.orders,
            read_restocks=production.consumer.shop.restocks,
        )

    def _alone(self, production: Production) -> None:
        orders = len(self._trade.past)
        production.begin(self._pace)
        self.board.say("production", f"{production.log.name} has {orders:,} orders; more arrive, a consumer reads them")
        self.alone_from = time.perf_counter()
        self._pace.pause(ALONE_S)
        self._pace.until(
            lambda: production.placed() >= _AT_LEAST_ORDERS or production.trouble, "orders to come", PATIENCE_S
        )
        self._require(production.consumer.shop.orders > 0, "production reads orders")
        self.agents_from = time.perf_counter()
        self.board.say("production", self.figures(self.alone_from, self.agents_from))

    def figures(self, since: float, until: float) -> str:
        """How production does, in a line."""
        assert self.production is not None
        found = self.production.latency(since, until)
        return (
            f"{found.per_s:,.0f} orders/s; append p50 {found.append_p50_us:,.0f} µs, p99 {found.append_p99_us:,.0f}; "
            f"read p50 {found.read_p50_us:,.0f} µs, p99 {found.read_p99_us:,.0f}"
        )

    def _start_spark(self, ended: ExitStack) -> sparking.SparkProcess | None:
        wanted = self.setting.spark
        self._no_spark = "it was not asked for" if wanted is False else sparking.why_not()
        if self._no_spark:
            if wanted:
                raise Refused(self._no_spark)
            self.board.say("spark", self._no_spark)
            return None
        scratch = ended.enter_context(TemporaryDirectory(prefix="braidlog-demo-spark-", ignore_cleanup_errors=True))
        spark = sparking.SparkProcess(self._access, Path(scratch), required=wanted is True)
        ended.callback(spark.close)
        self.board.say("spark", "starts in the background, in a process of its own")
        return spark

    def _restocker(self, production: Production, spark: sparking.SparkProcess | None) -> agents.Restocker:
        log = production.log
        self._stage = agents.Stage(production, self._pace, self.board)
        self._hands = [
            Hands(agent, log, self.braid, self._access, self._audit, self.board)
            for agent in ("analyst", "tester", "restocker")
        ]
        desk = Desk(self.braid, agents.Restocker.policy(log.name), access=self._access, audit=self._audit)
        return agents.Restocker(self._hands[-1], self._stage, desk, spark, self.setting.seed)

    def _together(
        self, production: Production, restocker: agents.Restocker
    ) -> tuple[list[Mispriced], dict[str, str], tuple[Attempt, Attempt]]:
        """All three at once. If one fails, the others end too."""
        analyst, tester, _ = self._hands
        with ThreadPoolExecutor(3, "demo-agent") as pool:
            try:
                looked = pool.submit(agents.analyse, analyst, self._stage)
                tried = pool.submit(agents.probe, tester, self._stage, self.setting.seed)
                restocked = pool.submit(restocker.work)
                crew: dict[str, Future[Any]] = {"analyst": looked, "tester": tried, "restocker": restocked}
                wait(crew.values(), return_when=FIRST_EXCEPTION)
            except BaseException:
                self._pace.stop()
                raise
            if any(one.done() and one.exception() for one in crew.values()):
                self._pace.stop()
        if production.trouble is not None:
            raise production.trouble
        for agent, one in crew.items():
            error = one.exception()
            if error is not None and not isinstance(error, Stopped):
                self.board.say(agent, f"failed: {error}", "bad")
                raise Refused(f"the demo failed: the {agent}: {error}") from error
        self.board.say("production", self.figures(self.agents_from, time.perf_counter()))
        return looked.result(), tried.result(), restocked.result()

    def _check_agents(self, found: list[Mispriced], tested: dict[str, str], caught: Attempt, promoted: Attempt) -> None:
        self._require(found == [self._trade.planted], "the analyst finds what was sold too cheaply, and nothing else")
        self._require(tested["late"].startswith("taken as late"), "the consumer takes late orders")
        self._require(tested["duplicate"].startswith("ignored"), "the consumer ignores duplicates")
        self._require(tested["malformed"].startswith("crash"), "a malformed order would crash the consumer")
        self._require(caught.state == "failed" and len(caught.reasons) == 2, "the validator catches both bad records")
        self._require(promoted.state == "promoted", "the good record is promoted")

    def _check_production(self, production: Production, log: Log, promoted: Attempt) -> None:
        """It has read everything, in the order of the log, and kept the stock right."""
        production.orders.stop()
        end = log.tail()
        self._pace.until(lambda: production.read_up_to(end - 1), "production reads all there is", PATIENCE_S)
        production.stop()
        consumer = production.consumer
        self._require(not consumer.crash, f"production never crashes ({consumer.crash})")
        again, at = Shop(), 0
        while at < end:
            found = log.read(at, end, max_records=_READ_RECORDS)
            for record in found:
                said = again.take(record.value)
                if record.position in promoted.positions:
                    self._require(said.startswith("put on the shelf"), f"the restock stands at {record.position}")
            at += len(found)
        self._require(again.stock == consumer.shop.stock, "production has the stock that its log says")
        restocks = len(SKUS) + len(promoted.positions)
        self._require(consumer.shop.restocks == restocks, "production saw the good restock, and no other")

    def _require(self, holds: bool, claim: str) -> None:
        if self.production is not None and self.production.trouble is not None:
            raise self.production.trouble
        if not holds:
            raise Refused(f"the demo failed: it is not so that {claim}")


def _free_name(braid: Braid) -> str:
    """The name, or the first of orders-2, orders-3 ... that is free: a demo may run twice in one directory."""
    name, number = "orders", 1
    while name in braid:
        number += 1
        name = f"orders-{number}"
    return name
