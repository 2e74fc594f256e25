"""An inventory that follows a stream of orders and restocks, and takes no nonsense.

An order takes from the stock, or waits if there is too little. A restock adds to it, but only if it is one: a count
above zero and below `COUNT_MAX`, of an item. Every event is answered by a row, with the stock after it, so that whoever
wrote restocks on a fork sees what the consumer makes of them before anybody else does: `acceptable` is what a fork must
fulfil to be promoted.

    python -m apps.pipelines.supply_chain --url supply.braid
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from apps.pipelines.command import Command, decoded
from braidlog.spark.expectations import Expectation, every_row, row_count

EVENT: Final = "kind string, item string, count bigint"
ANSWER: Final = "position bigint, item string, kind string, count bigint, stock bigint, waiting bigint, refusal string"
COUNT_MAX: Final = 10_000


class Shelf(StatefulProcessor):
    """One item: what lies there, and how much was ordered that could not be given."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("shelf", "stock bigint, waiting bigint")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: ARG002
        stock, waiting = self._state.get() or (0, 0)
        answers = []
        for row in pd.concat(list(rows)).sort_values("position").itertuples(index=False):
            count = None if pd.isna(row.count) else int(row.count)
            refusal = refused(key[0], row.kind, count)
            if refusal is None and count is not None:
                if row.kind == "restock":
                    given = min(waiting, stock + count)
                    stock, waiting = stock + count - given, waiting - given
                else:
                    given = count if count <= stock else 0
                    stock, waiting = stock - given, waiting + count - given
            answers.append((row.position, key[0], row.kind, count, stock, waiting, refusal))
        self._state.update((stock, waiting))
        yield pd.DataFrame(answers, columns=[field.split()[0] for field in ANSWER.split(", ")]).astype(
            {"count": "Int64"}
        )

    def close(self) -> None:
        """Nothing is held open."""


def refused(item: str, kind: str | None, count: int | None) -> str | None:
    """Why an event is not taken; None if it is."""
    if kind not in ("order", "restock"):
        return "it is neither an order nor a restock"
    if not item:
        return "it names no item"
    if count is None:
        return "it has no count"
    if not 0 < count <= COUNT_MAX:
        return f"its count is not between 1 and {COUNT_MAX}"
    return None


def inventory(records: DataFrame) -> DataFrame:
    """Each event with the stock of its item after it. What names no item is answered, too."""
    events = decoded(records, EVENT).withColumn("item", f.coalesce("item", f.lit("")))
    return events.groupBy("item").transformWithStateInPandas(
        statefulProcessor=Shelf(), outputStructType=ANSWER, outputMode="Append", timeMode="None"
    )


def acceptable() -> list[Expectation]:
    """What a fork with restocks must fulfil: the consumer refuses nothing of it."""
    return [row_count(at_least=1), every_row("refusal is null")]


def draw(rng: Random, count: int) -> list[dict[str, object]]:
    """Orders and restocks of a few items; a few of the restocks are none."""
    drawn: list[dict[str, object]] = []
    for _ in range(count):
        item = rng.choice(("bolt", "nut", "gear", "belt"))
        fate = rng.random()
        if fate < 0.75:
            drawn.append({"kind": "order", "item": item, "count": rng.randrange(1, 20)})
        elif fate < 0.96:
            drawn.append({"kind": "restock", "item": item, "count": rng.randrange(20, 60)})
        else:
            broken = ({"count": -5}, {"count": None}, {"count": "many"}, {"item": None}, {"kind": "gift"})
            drawn.append({"kind": "restock", "item": item, "count": 10} | rng.choice(broken))
    return drawn


def main(argv: Sequence[str] | None = None) -> None:
    with Command(__doc__, "supply", draw, argv, output="inventory") as command:
        answers = command.run(inventory)
        answers.groupBy("item").agg(f.max_by("stock", "position"), f.max_by("waiting", "position")).show()
        answers.filter("refusal is not null").orderBy("position").show(20, truncate=False)


if __name__ == "__main__":
    main()
