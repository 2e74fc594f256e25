"""Transactions, each looked at in the light of all that its user did before: features, and an alert where they differ.

The state of a user is three numbers (Welford's), so that mean and deviation need no history. It lives in Spark's state
store, which must be RocksDB's for this operator, and comes back from the checkpoint.

    python -m apps.pipelines.fraud --url transactions.braid
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from apps.pipelines.command import Command, decoded

TRANSACTION: Final = "user string, amount double, country string"
FEATURES: Final = (
    "position bigint, user string, amount double, seen bigint, mean double, deviation double, "
    "moved boolean, alert boolean"
)
STATE: Final = "seen bigint, mean double, squares double, country string"
SEEN_MIN: Final = 5  # nobody is strange before this many transactions
DEVIATIONS: Final = 4.0
AMOUNT_MAX: Final = 1e150  # whose square is a number still


class Spender(StatefulProcessor):
    """What is remembered of one user."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("spending", STATE)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: ARG002
        seen, mean, squares, country = self._state.get() or (0, 0.0, 0.0, None)
        # Spark brings the rows of a user together in any order; the log has one.
        batch = pd.concat(list(rows)).sort_values("position")
        found = []
        for row in batch.itertuples(index=False):
            deviation = (squares / seen) ** 0.5 if seen else 0.0
            strange = seen >= SEEN_MIN and row.amount > mean + DEVIATIONS * max(deviation, 1.0)
            moved = country is not None and row.country != country
            found.append((row.position, key[0], row.amount, seen, mean, deviation, moved, strange))
            seen += 1
            step = row.amount - mean
            mean += step / seen
            squares += step * (row.amount - mean)
            country = row.country
        self._state.update((seen, mean, squares, country))
        yield pd.DataFrame(found, columns=[field.split()[0] for field in FEATURES.split(", ")])

    def close(self) -> None:
        """Nothing is held open."""


def features(records: DataFrame) -> DataFrame:
    """For each transaction what was known of its user before it, and whether it is out of line."""
    found = decoded(records, TRANSACTION).filter("user is not null")
    # Spark takes NaN and Infinity from JSON. With one of them in it a mean is no number again, and nothing is an alert.
    found = found.filter(f"abs(amount) <= {AMOUNT_MAX}")
    return found.groupBy("user").transformWithStateInPandas(
        statefulProcessor=Spender(), outputStructType=FEATURES, outputMode="Append", timeMode="None"
    )


def draw(rng: Random, count: int) -> list[dict[str, object]]:
    """Users that spend as they are used to; now and then somebody else spends for them."""
    habits = {f"u{number}": rng.uniform(10, 200) for number in range(12)}
    drawn: list[dict[str, object]] = []
    for _ in range(count):
        user = rng.choice(sorted(habits))
        fraud = rng.random() < 0.02
        amount = rng.gauss(habits[user], habits[user] / 10) * (8 if fraud else 1)
        drawn.append({"user": user, "amount": round(abs(amount), 2), "country": "FR" if fraud else "NL"})
    return drawn


def main(argv: Sequence[str] | None = None) -> None:
    with Command(__doc__, "transactions", draw, argv, output="features") as command:
        command.run(features).filter("alert").orderBy("position").show(20, truncate=False)


if __name__ == "__main__":
    main()
