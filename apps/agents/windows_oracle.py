"""What windows must come to, worked out in SQL over the records of a fork: none of a processor's code is in it.

A sale that is later than the limit when it comes may be counted or not: a processor that takes records in batches
learns how far the stream had come only afterwards. So for each window there is what is sure and what is doubtful, and
every outcome between them is right.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, Field

from apps.agents.processors import LATEST_MS, WINDOW_MS

Window = tuple[int, str]
Sum = tuple[int, int]  # of how many sales, and how much
Allowed = dict[Window, frozenset[Sum]]

NOTHING: Final = (0, 0)
_SQL: Final = """WITH tried(variant, left_out) AS (VALUES {variants}),
sales AS (
  SELECT variant, position, json_extract_string(json, '$.id') AS id, json_extract_string(json, '$.shop') AS shop,
    TRY_CAST(json_extract_string(json, '$.at') AS BIGINT) AS moment,
    TRY_CAST(json_extract_string(json, '$.amount') AS BIGINT) AS amount
  FROM records, tried
  WHERE NOT list_contains(left_out, position) AND json_type(json) = 'OBJECT'
    AND json_type(json, '$.id') = 'VARCHAR' AND json_type(json, '$.shop') = 'VARCHAR'
    AND json_type(json, '$.at') IN ('BIGINT', 'UBIGINT') AND json_type(json, '$.amount') IN ('BIGINT', 'UBIGINT')),
ordered AS (
  SELECT *, moment // {window} * {window} AS begins, max(moment) OVER (PARTITION BY variant) AS newest,
    row_number() OVER (PARTITION BY variant, id ORDER BY position) AS occurrence,
    moment > coalesce(max(moment) OVER (PARTITION BY variant ORDER BY position
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) - {latest} AS sure
  FROM sales WHERE amount > 0)
SELECT variant, begins, shop, (count(*) FILTER (sure))::BIGINT AS sales,
  coalesce(sum(amount) FILTER (sure), 0)::BIGINT AS total, list(amount) FILTER (NOT sure) AS doubtful
FROM ordered
WHERE occurrence = 1 AND begins + {window} <= newest - {latest} AND begins >= {since}
GROUP BY variant, begins, shop ORDER BY variant, begins, shop"""


class Difference(BaseModel):
    """A window that came out wrong. Sums are how many sales, and how much."""

    begins: int = Field(description="of the window, in milliseconds")
    shop: str
    expected: list[Sum] = Field(description="what is right; several where an event was too late to be sure")
    got: list[Sum] = Field(description="what the processor told of it; nothing, or more than once, may be wrong too")


def sql(since: int, left_out: Sequence[Iterable[int]] = ((),)) -> str:
    """A query for all windows that have ended. Each variant is the log without the records at some positions."""
    variants = ", ".join(f"({n}, {sorted(positions)}::BIGINT[])" for n, positions in enumerate(left_out))
    return _SQL.format(variants=variants, window=WINDOW_MS, latest=LATEST_MS, since=since)


def allowed(rows: Iterable[Sequence[Any]]) -> Mapping[int, Allowed]:
    """What may come of each window, for each variant, from the rows of that query."""
    found: dict[int, Allowed] = defaultdict(dict)
    for variant, begins, shop, sales, total, doubtful in rows:
        sums = {(sales, total)}
        for amount in doubtful or ():
            sums |= {(count + 1, much + amount) for count, much in sums}
        found[variant][begins, shop] = frozenset(sums)
    return found


def differences(expected: Allowed, rows: Iterable[Sequence[Any]]) -> list[Difference]:
    """Where a processor's rows (begins, shop, sales, total) are none of what may be."""
    got: dict[Window, list[Sum]] = defaultdict(list)
    for begins, shop, sales, total in rows:
        got[begins, shop].append((sales, total))
    return [
        Difference(begins=window[0], shop=window[1], expected=sorted(right), got=got.get(window, []))
        for window in sorted(expected.keys() | got.keys())
        if not _fits(got.get(window, []), right := expected.get(window, frozenset({NOTHING})))
    ]


def _fits(told: Sequence[Sum], right: frozenset[Sum]) -> bool:
    return told[0] in right if len(told) == 1 else not told and NOTHING in right
