"""Apache Kafka: one broker that is its own controller (KRaft), from Maven Central, driven by confluent-kafka.

The broker's setting `log.flush.interval.messages` has its equal in each topic, `flush.messages`. So one broker serves
both drivers: the one whose topics are synced before each acknowledgement, and the one that leaves it to the kernel, as
Kafka does by default. All else is as Kafka has it, but for the sizes of its socket buffers, left to the system: with
100 KiB, less than two of loopback's segments, pipelined batches were seen to wait 50 to 300 ms for each other.
"""

from __future__ import annotations

import base64
import contextlib
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bench.peers import servers
from bench.peers.driver import DEADLINE_S, Driver, Seen, Workload, filler, stamped
from bench.peers.servers import Unavailable

NAME: Final = "Apache Kafka"
VERSION: Final = "4.3.1"
FSYNC: Final = "fsync"
_LOGGER_VERSION: Final = "1.7.36"  # of slf4j, whose interface this Kafka uses
_INSTALL_S: Final = 900.0
_START_S: Final = 60.0
_HEAP: Final = "1g"  # as Kafka's own start script has it
_POM: Final = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>braidlog.bench</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-simple</artifactId>
      <version>{_LOGGER_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""
_SETTINGS: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
socket.receive.buffer.bytes=-1
socket.send.buffer.bytes=-1
auto.create.topics.enable=false
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


def install() -> str:
    """Let Maven fetch the broker and all that it needs into the cache, every checksum checked. Returns its version."""
    _client_library()
    if shutil.which("java") is None:
        raise Unavailable("the broker needs `java`, 17 or later, which is not on the path")
    servers.installed(f"kafka-{VERSION}", _fetch)
    return f"Kafka {VERSION}"


def _fetch(folder: Path) -> None:
    (folder / "pom.xml").write_text(_POM)
    command = ["mvn", "--quiet", "--batch-mode", "--strict-checksums", "--file", str(folder / "pom.xml")]
    command += ["dependency:copy-dependencies", f"-DoutputDirectory={folder / 'jars'}", "-DincludeScope=runtime"]
    servers.run(command, f"fetching Kafka {VERSION} from Maven's repository", _INSTALL_S)
    if not list((folder / "jars").glob(f"kafka_*-{VERSION}.jar")):
        raise Unavailable(f"Maven fetched no Kafka {VERSION} into {folder / 'jars'}")


@contextlib.contextmanager
def serving(folder: Path, cores: frozenset[int]) -> Iterator[str]:
    """A broker with its data in the folder, at the address that comes back."""
    admin = _client_library("admin")
    broker, controller = servers.free_ports(2)
    settings = folder / "server.properties"
    settings.write_text(_SETTINGS.format(broker=broker, controller=controller, data=folder / "data"))
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    java = ["java", f"-Xms{_HEAP}", f"-Xmx{_HEAP}", "-XX:+UseG1GC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    java += ["-cp", str(servers.cache() / f"kafka-{VERSION}" / "jars" / "*")]
    preparing = ["kafka.tools.StorageTool", "format", "--cluster-id", cluster, "--config", str(settings)]
    servers.run([*java, *preparing], "preparing the folder of a Kafka broker", _START_S)
    with servers.running(NAME, [*java, "kafka.Kafka", str(settings)], cores, folder) as server:
        address = f"127.0.0.1:{broker}"
        client = admin.AdminClient({"bootstrap.servers": address, "log_level": 0, "reconnect.backoff.max.ms": 500})

        def ready() -> bool:
            with contextlib.suppress(_client_library().KafkaException):
                return bool(client.list_topics(timeout=1.0).brokers)
            return False

        server.wait_until(ready, _START_S)
        yield address


class Kafka(Driver):
    """A topic of one partition is a log."""

    def __init__(self, address: str, variant: str = "") -> None:
        super().__init__(address, variant)
        self._library = _client_library()
        self._warm = ""
        self._admin = _client_library("admin").AdminClient({"bootstrap.servers": address, "log_level": 0})

    @property
    def label(self) -> str:
        return f"{NAME}, synced" if self.variant == FSYNC else f"{NAME}, not synced"

    @property
    def durability(self) -> str:
        acknowledged = "one broker, KRaft, replication factor 1, acks=all: "
        if self.variant == FSYNC:
            return acknowledged + "flush.messages=1, so each batch is synced before it is acknowledged"
        return acknowledged + "the default, where nothing is synced before it is acknowledged: power loss loses records"

    def create(self, log: str) -> None:
        config = {"flush.messages": "1"} if self.variant == FSYNC else {}
        topic = _client_library("admin").NewTopic(log, num_partitions=1, replication_factor=1, config=config)
        self._admin.create_topics([topic])[log].result(DEADLINE_S)
        deadline = time.monotonic() + DEADLINE_S
        while self._admin.list_topics(log, timeout=DEADLINE_S).topics[log].error is not None:  # a broker learns later
            if time.monotonic() > deadline:
                raise TimeoutError(f"{NAME} does not know {log} after {DEADLINE_S:g} s")
            time.sleep(0.02)

    def delete(self, log: str) -> None:
        self._admin.delete_topics([log])[log].result(DEADLINE_S)

    def length(self, log: str) -> int:
        with self._consumer() as consumer:
            _, high = consumer.get_watermark_offsets(self._library.TopicPartition(log, 0), timeout=DEADLINE_S)
            return int(high)

    def append_all(self, log: str, work: Workload) -> float:
        """The client collects batches by the same bounds; how much is under way is bounded here, as for the others.

        Reports of success are not asked for, one by one, as they would cost more than the records: the client counts
        what is not acknowledged yet, and reports failures.
        """
        failures: list[str] = []
        in_flight = work.batches_in_flight * work.batch_records
        batch_bytes = work.batch_records * work.record_bytes
        producer = self._producer(
            log,
            {
                "linger.ms": work.linger_ms,
                "batch.num.messages": work.batch_records,
                "batch.size": batch_bytes + 100 * work.batch_records,  # with room for what goes with each record
                "message.max.bytes": max(1_000_000, 2 * batch_bytes),
                "max.in.flight": work.batches_in_flight,
                "queue.buffering.max.messages": 2 * in_flight + work.batch_records,
                "delivery.report.only.error": True,
                "on_delivery": lambda error, _: failures.append(str(error)),
            },
        )
        begun = time.perf_counter()
        for batch in work.batches():
            while len(producer) + len(batch) > in_flight:
                producer.poll(0.0005)
            queued = producer.produce_batch(log, [{"value": value} for value in batch], partition=0)
            assert queued == len(batch), f"{NAME} queued {queued} of {len(batch)} records"
        left = producer.flush(DEADLINE_S)
        took = time.perf_counter() - begun
        assert not left, f"{NAME} has not acknowledged {left} records after {DEADLINE_S:g} s"
        assert not failures, f"{NAME} failed to append {len(failures)} records: {failures[0]}"
        return took

    def append_each(self, log: str, count: int, record_bytes: int, pause_s: float) -> list[float]:
        rest = filler(record_bytes)
        answers: list[Any] = []
        producer = self._producer(log, {"linger.ms": 0, "on_delivery": lambda error, _: answers.append(error)})
        taken = []
        for number in range(count):
            begun = time.perf_counter()
            producer.produce(log, stamped(rest), partition=0)
            while len(answers) == number:
                if not producer.poll(DEADLINE_S):
                    raise TimeoutError(f"{NAME} has not acknowledged a record after {DEADLINE_S:g} s")
            taken.append(time.perf_counter() - begun)
            if answers[number] is not None:
                raise RuntimeError(f"{NAME} failed to append a record: {answers[number]}")
            if pause_s:
                time.sleep(pause_s)
        return taken

    def follow(self, log: str, seen: Seen, chunk: int) -> None:
        with self._consumer() as consumer:
            consumer.assign([self._library.TopicPartition(log, 0, 0)])
            while True:
                messages = consumer.consume(chunk, DEADLINE_S)
                if not messages:
                    raise TimeoutError(f"no record came to {log} for {DEADLINE_S:g} s")
                for message in messages:
                    if message.error() is not None:
                        raise RuntimeError(f"{NAME} failed to read {log}: {message.error()}")
                if not seen([message.value() for message in messages]):
                    return

    def _producer(self, log: str, settings: dict[str, Any]) -> Any:
        """One that knows the topic already, and has appended to another, because it connects when it first appends."""
        fixed = {"bootstrap.servers": self.address, "acks": "all", "socket.nagle.disable": True}
        producer = self._library.Producer({**fixed, **settings})
        producer.list_topics(log, timeout=DEADLINE_S)
        if not self._warm:
            self._warm = self._name()
            self.create(self._warm)
        failures: list[Any] = []
        producer.produce(
            self._warm, b"warm", partition=0, on_delivery=lambda error, _: failures.append(error) if error else None
        )
        left = producer.flush(DEADLINE_S)
        if left or failures:
            raise RuntimeError(f"{NAME} did not take a first record: {failures or 'no answer'}")
        return producer

    @contextlib.contextmanager
    def _consumer(self) -> Iterator[Any]:
        settings = {"bootstrap.servers": self.address, "group.id": "bench", "enable.auto.commit": False}
        consumer = self._library.Consumer({**settings, "socket.nagle.disable": True})
        try:
            yield consumer
        finally:
            consumer.close()


def _client_library(part: str = "") -> Any:
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError:
        raise Unavailable('its client is not installed (pip install "braidlog[bench]")') from None
    return confluent_kafka.admin if part == "admin" else confluent_kafka
