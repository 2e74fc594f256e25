"""Where logs may be, and where Spark may run: object stores, services, other processes, Spark Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import braidlog
from braidlog.testing.seaweed import Seaweed
from tests.e2e.secured import Authority, Site, serve
from tests.spark.conftest import SETTINGS
from tests.spark.test_sink import writer_of

STARTED_S = 240  # until a Spark of its own has come and gone, on a machine that has much else to do


def values(df: DataFrame) -> list[bytes]:
    return [bytes(row.value) for row in df.orderBy("position").collect()]


def test_objects_in_an_object_store(spark: SparkSession, s3: Seaweed, directory: str) -> None:
    expected = [b"%d" % n * 1000 for n in range(2000)]
    with braidlog.open(directory, objects=s3.url("spark")) as braid:
        braid.create("orders").append_many(expected)
        braid.log("orders").append(b"inline")
    found = spark.read.format("braidlog").options(url=directory, log="orders").load()
    assert values(found) == [*expected, b"inline"]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("service")
    site = serve(folder, Authority(folder / "ca"))
    yield site
    site.close()


def test_a_service_with_tls_and_a_token(spark: SparkSession, service: Site, tmp_path: Path, checkpoint: str) -> None:
    (tmp_path / "token").write_text(service.token("spark", "read:*"))
    (tmp_path / "wrong").write_text("bt_" + "x" * 40)
    with service.open() as braid:
        orders = braid.create("orders")
        orders.append_many([b"a", b"b"])
        reach = {"url": service.url, "tlsCa": service.authority.file, "log": "orders", "timeout": "30"}
        options = reach | {"tokenFile": str(tmp_path / "token")}
        df = spark.read.format("braidlog").options(**options).load()
        assert values(df) == [b"a", b"b"]
        orders.append(b"c")
        stream = spark.readStream.format("braidlog").options(**options, startingOffsets="earliest").load()
        writer = stream.writeStream.format("memory").queryName("served").option("checkpointLocation", checkpoint)
        query = writer.start()
        try:
            while len(values(spark.table("served"))) < 3:
                query.processAllAvailable()
            orders.append(b"d")
            while len(values(spark.table("served"))) < 4:
                query.processAllAvailable()
        finally:
            query.stop()
        assert values(spark.table("served")) == [b"a", b"b", b"c", b"d"]
        rows = spark.createDataFrame([(b"e",), (b"f",)], "value binary").coalesce(1)
        with pytest.raises(PySparkException, match="NotPermitted"):
            rows.write.format("braidlog").mode("append").options(**options).save()
        (tmp_path / "writer").write_text(service.token("writer", "append:orders", "read:orders"))
        permitted = reach | {"tokenFile": str(tmp_path / "writer")}
        rows.write.format("braidlog").mode("append").options(**permitted).save()
        assert [record.value for record in orders.read(4)] == [b"e", b"f"]
    with pytest.raises(PySparkException, match="NotPermitted") as caught:
        spark.read.format("braidlog").options(**reach, tokenFile=str(tmp_path / "wrong")).load().count()
    assert "x" * 40 not in str(caught.value)
    service.close()
    with pytest.raises(PySparkException, match="Unavailable") as caught:
        spark.read.format("braidlog").options(**options | {"timeout": "1"}).load().count()
    assert "Traceback" not in str(caught.value)


SCRIPT = """
import sys
from pyspark.sql import SparkSession

how, url, checkpoint = sys.argv[1:]
builder = SparkSession.builder
builder = builder.remote("local[2]") if how == "connect" else builder.master(how)
for name, value in {settings}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
source = spark.read.format("braidlog").options(url=url, log="orders", minPartitions="2")
print("read", source.load().selectExpr("sum(cast(cast(value AS string) AS int)) AS n").first().n, flush=True)
stream = spark.readStream.format("braidlog").options(url=url, log="orders", startingOffsets="earliest").load()
query = stream.writeStream.format("memory").queryName("seen").option("checkpointLocation", checkpoint)
query.trigger(availableNow=True).start().awaitTermination()
print("streamed", spark.table("seen").count(), flush=True)
sink = {{"url": url, "log": "copy", "createLog": "true"}}
source.load().select("key", "value").write.format("braidlog").mode("append").options(**sink).save()
writer = stream.select("value").writeStream.format("braidlog").options(**sink, checkpointLocation=checkpoint + "-copy")
writer.trigger(availableNow=True).start().awaitTermination()
print("wrote", spark.read.format("braidlog").options(url=url, log="copy").load().count(), flush=True)
if how == "connect":
    from braidlog.spark import run
    where = dict(url=url, log="orders", output="updated", checkpoint=checkpoint + "-updated", mode="update")
    query = run(lambda records: records.select("value"), spark=spark, write_options=dict(createLog="true"), **where)
    query.awaitTermination()
try:
    spark.read.format("braidlog").options(url=url, log="nobody").load().count()
except Exception as error:
    print("told", "no log 'nobody'" in str(error) and "Traceback" not in str(error), flush=True)
spark.stop()
"""


def run(how: str, environment: dict[str, str], folder: Path) -> None:
    """Batch, stream, both as sinks, and an error in a Spark of its own."""
    with braidlog.open(folder / "logs.braid") as braid:
        braid.create("orders").append_many([b"%d" % n for n in range(100)])
    script = folder / "script.py"
    script.write_text(SCRIPT.format(settings=SETTINGS))
    done = subprocess.run(
        [sys.executable, str(script), how, str(folder / "logs.braid"), str(folder / "checkpoint")],
        env=os.environ
        | environment
        | {"SPARK_HOME": str(Path(pyspark.__file__).parent), "SPARK_WORKER_DIR": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=STARTED_S,
        check=False,
    )
    assert done.stdout.splitlines() == ["read 4950", "streamed 100", "wrote 200", "told True"], (
        done.stdout + done.stderr[-3000:]
    )


def test_executors_that_are_processes_of_their_own(spark_environment: dict[str, str], tmp_path: Path) -> None:
    run("local-cluster[2,1,1024]", spark_environment, tmp_path)


def test_spark_connect(spark_environment: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("grpc_status", reason="Spark Connect needs pyspark[connect]")
    run("connect", spark_environment, tmp_path)
    with braidlog.open(tmp_path / "logs.braid") as braid:
        assert braid.log("updated").tail() == 100
        [query] = [json.loads(path.read_text())["id"] for path in tmp_path.glob("checkpoint-updated/metadata")]
        assert list(writer_of(braid).forest.by_name("updated").writers) == [f"spark-txn:spark:{query}"]
