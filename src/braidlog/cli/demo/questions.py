"""The two questions that agents of the demo ask of a log: in SQL where DuckDB is installed, else of Arrow tables.

Both ways answer the same. SQL runs in a process of its own, as it does for agents that come by `braid mcp`.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from braidlog.agents import sql
from braidlog.cli.demo.trade import Mispriced

if TYPE_CHECKING:
    from braidlog import Log

_TOO_CHEAP: Final = 3  # times below what is usual
MISPRICED: Final = f"""WITH usual AS (SELECT sku, median(cents) AS usual FROM rows WHERE type = 'order' GROUP BY sku)
SELECT shop, sku, day, count(*) FROM rows JOIN usual USING (sku)
WHERE type = 'order' AND cents * {_TOO_CHEAP} < usual GROUP BY ALL ORDER BY ALL"""
STOCK: Final = """SELECT sku, sum(CASE type WHEN 'restock' THEN quantity ELSE -quantity END)::BIGINT
FROM rows GROUP BY sku ORDER BY sku"""


def engine() -> str:
    """What answers here."""
    return "DuckDB" if sql.available() else "Arrow"


def mispriced(log: Log) -> tuple[list[Mispriced], int]:
    """What was sold far below its usual price, and how many records were looked at."""
    if sql.available():
        found = _asked(log, MISPRICED)
        return [Mispriced(shop=shop, sku=sku, day=day, orders=n) for shop, sku, day, n in found.rows], found.records
    table = _table(log)
    orders = table.filter(pc.field("type") == "order")
    medians = orders.group_by("sku").aggregate([("cents", "approximate_median")])
    together = orders.join(medians, "sku")
    cheap = together.filter(pc.field("cents") * _TOO_CHEAP < pc.field("cents_approximate_median"))
    counted = cheap.group_by(["shop", "sku", "day"]).aggregate([([], "count_all")]).to_pylist()
    rows = sorted((row["shop"], row["sku"], row["day"], row["count_all"]) for row in counted)
    return [Mispriced(shop=shop, sku=sku, day=day, orders=n) for shop, sku, day, n in rows], table.num_rows


def stock(log: Log) -> dict[str, int]:
    """How much there is of each sku."""
    if sql.available():
        return dict(_asked(log, STOCK).rows)
    table = _table(log)
    put = pc.equal(table["type"], "restock")
    change = pc.if_else(put, table["quantity"], pc.negate(table["quantity"]))
    summed = table.append_column("change", change).group_by("sku").aggregate([("change", "sum")])
    return {row["sku"]: row["change_sum"] for row in summed.sort_by("sku").to_pylist()}


def _asked(log: Log, statement: str) -> sql.Result:
    return sql.Query(log, statement, 0, log.info().readable_tail).run()


def _table(log: Log) -> pa.Table:
    values = log.read_arrow(0, log.info().readable_tail).column("value").to_pylist()
    return pyarrow.json.read_json(io.BytesIO(b"\n".join(values)))
