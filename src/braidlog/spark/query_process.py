"""The process that carries out queries by Spark, one after the other. See `braidlog.agents.sql_spark`.

Orders come on standard input, one JSON object in each line; answers go the same way to the file descriptor that the
command line names, after a first line that says that Spark is there. The end of standard input means that nobody waits
any more, and ends the whole session. Each query has a session of Spark for itself, with nothing in it but its views.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import resource
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from braidlog import limits
from braidlog.agents.sql_process import shown, too_wide
from braidlog.agents.sql_spark import end_session
from braidlog.errors import BraidError
from braidlog.spark.errors import BraidlogFailed
from braidlog.spark.query_check import Checker, NotAllowed

_TYPES: Final[dict[str, DataType]] = {
    "integer": LongType(),
    "number": DoubleType(),
    "boolean": BooleanType(),
    "string": StringType(),
    "date-time": TimestampType(),
}
_RECORDS: Final = (
    "position",
    "timestamp",
    r"coalesce(try_validate_utf8(CAST(key AS STRING)), concat('\\x', hex(key))) AS key",
    "value",
    "try_validate_utf8(CAST(value AS STRING)) AS text",
    "headers",
)
_DEAD: Final = (OSError, EOFError, Py4JNetworkError)
_OBJECT: Final = r"^[ \t\r\n]*\{"


def main() -> None:
    """Until nobody waits any more."""
    answers, scratch = int(sys.argv[1]), Path(sys.argv[2])
    os.set_inheritable(answers, False)
    orders: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    threading.Thread(target=_watch, args=(scratch,), daemon=True).start()
    _confine()
    spark = _started(scratch)
    checker = Checker(spark)
    _tell(answers, {})
    while True:
        _tell(answers, _answer(spark, checker, json.loads(orders.get()), scratch))


def _listen(orders: queue.SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        orders.put(line)
    end_session(os.getpid())


def _watch(scratch: Path) -> None:
    """What Spark puts aside has a bound, which it does not know of itself."""
    pause = threading.Event()
    while not pause.wait(limits.SQL_SPARK_LOOK_S):
        if _size(scratch) > limits.SQL_SPARK_DISK_BYTES_MAX:
            end_session(os.getpid())


def _size(folder: Path) -> int:
    size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # it was there for a moment only
                size += os.lstat(os.path.join(place, name)).st_size
    return size


def _tell(answers: int, told: dict[str, Any]) -> None:
    data = json.dumps(told).encode() + b"\n"
    while data:
        data = data[os.write(answers, data) :]


def _confine() -> None:
    """For this process, and all that it starts."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits.SQL_SPARK_DISK_BYTES_MAX, limits.SQL_SPARK_DISK_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_AS, (limits.SQL_SPARK_ADDRESS_SPACE_BYTES, limits.SQL_SPARK_ADDRESS_SPACE_BYTES))


def settings(scratch: Path) -> dict[str, str]:
    """Of Spark, for queries of whoever asks."""
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.authenticate": "true",
        "spark.driver.memory": f"{limits.SQL_SPARK_MEMORY_BYTES // limits.MIB}m",
        "spark.driver.maxResultSize": str(limits.SQL_SPARK_RESULT_BYTES),
        "spark.driver.extraJavaOptions": "-XX:+ExitOnOutOfMemoryError",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.runSQLOnFiles": "false",
        "spark.sql.variable.substitute": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(2 * limits.SQL_SPARK_THREADS),
    }


def _started(scratch: Path) -> SparkSession:
    builder = SparkSession.builder.master(f"local[{limits.SQL_SPARK_THREADS}]").appName("braidlog-query")
    for name, value in settings(scratch).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _answer(spark: SparkSession, checker: Checker, order: dict[str, Any], scratch: Path) -> dict[str, Any]:
    done, overdue = threading.Event(), threading.Event()

    def end() -> None:
        if done.wait(order["time_s"]):
            return
        overdue.set()
        while True:  # a query may have several jobs, one after the other
            with contextlib.suppress(Py4JError):
                spark.sparkContext.cancelAllJobs()
            if done.wait(limits.SQL_SPARK_LOOK_S):
                return

    ending = threading.Thread(target=end, daemon=True)
    ending.start()
    try:
        with _token_file(order, scratch) as token_file:
            return _carried_out(spark, checker, order, token_file)
    except NotAllowed as error:
        return {"error": "statement", "message": str(error)}
    except Exception as error:  # of Spark, or of Python, which has no dates after 9999 and no lists as keys
        if isinstance(error, _DEAD) and not isinstance(error, BraidError):
            raise  # the JVM is no more, and this process of no use
        if overdue.is_set():
            return {"error": "time", "message": f"the query was ended after {order['time_s']:g} s"}
        return {"error": "query", "message": f"Spark: {_words(error)}"}
    finally:
        done.set()
        ending.join()  # or it would end the next one


@contextlib.contextmanager
def _token_file(order: dict[str, Any], scratch: Path) -> Iterator[str | None]:
    """Workers of Spark take a token from a file, which is there as long as the query."""
    if order["token"] is None:
        yield order["token_file"]
        return
    file = scratch / "token"
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
        opened.write(order["token"])
    try:
        yield str(file)
    finally:
        file.unlink()


def _carried_out(
    spark: SparkSession, checker: Checker, order: dict[str, Any], token_file: str | None
) -> dict[str, Any]:
    session = spark.newSession()
    checker.check(order["sql"], _make_views(session, order, token_file))
    found = session.sql(order["sql"])
    _check_types(json.loads(found._jdf.schema().json()))
    columns = [(field.name, field.dataType.simpleString().upper()) for field in found.schema.fields]
    return too_wide(columns, order) or shown(columns, _rows(found, order), order)


def _check_types(schema: Any) -> None:
    """Before Python looks at it, as it would load the class that a type of a user's own names."""
    if isinstance(schema, dict):
        if schema.get("type") == "udt":
            raise NotAllowed("a type of a user's own is not answered")
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            _check_types(part)


def _make_views(session: SparkSession, order: dict[str, Any], token_file: str | None) -> set[str]:
    log = order["log"]
    options = {
        "url": order["url"],
        "log": log,
        "startingOffsets": json.dumps({log: order["start"]}),
        "endingOffsets": json.dumps({log: order["stop"]}),
        "includeHeaders": "true",
    }
    given = {"tokenFile": token_file, "tlsCa": order["tls_ca"]}
    options |= {name: value for name, value in given.items() if value is not None}
    raw = session.read.format("braidlog").options(**options).load()
    records = raw.selectExpr(*_RECORDS).selectExpr("*", "try_parse_json(text) AS json")
    records.createOrReplaceTempView("records")
    if not order["fields"]:
        return {"records"}
    _objects(records, order["fields"]).createOrReplaceTempView("rows")
    return {"records", "rows"}


def _objects(records: DataFrame, fields: list[tuple[str, str]]) -> DataFrame:
    """Those records that are JSON objects, with a column for each field."""
    shape = StructType([StructField(name, _TYPES.get(kind, VariantType())) for name, kind in fields])
    objects = records.where(F.col("json").isNotNull() & F.col("text").rlike(_OBJECT))
    parsed = objects.withColumn("json", F.from_json("text", shape))
    return parsed.select(
        F.col("position").alias("_position"),
        F.col("timestamp").alias("_timestamp"),
        F.col("key").alias("_key"),
        *(F.col("json").getField(name).alias(name) for name, _ in fields),
    )


def _rows(found: DataFrame, order: dict[str, Any]) -> Iterator[list[Any]]:
    """One more than may be answered, so that it is known whether there are more; texts are cut where they are."""
    numbered = found.toDF(*(f"c{number}" for number in range(len(found.columns))))
    most = order["cell_chars_max"] + 1
    cells = [
        F.substring(field.name, 1, most).alias(field.name)
        if isinstance(field.dataType, StringType)
        else F.col(field.name)
        for field in numbered.schema.fields
    ]
    for row in numbered.select(*cells).limit(order["rows_max"] + 1).collect():
        yield [_plain(value) for value in row]


def _plain(value: Any) -> Any:
    """Rows as dicts, wherever they are."""
    if isinstance(value, Row):
        return {name: _plain(part) for name, part in value.asDict().items()}
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list) else value


def _words(error: Exception) -> str:
    """What Spark says first, or what it says of the log. Plans and the stacks of several processes follow."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line.partition(f"{BraidlogFailed.__name__}: ")[2] for line in lines if BraidlogFailed.__name__ in line]
    return next((line for line in [*ours, *lines] if line), type(error).__name__)[: limits.SQL_SPARK_ERROR_CHARS_MAX]


if __name__ == "__main__":
    main()
