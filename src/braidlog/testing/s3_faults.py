"""A proxy in front of an S3 server that does to requests what networks and busy servers do to them.

What befalls a request is said beforehand: by `script`, for the next ones of a method, or by a seed, and then the n-th
request of a method always meets the same. Requests are passed on as they came, so signatures stay good. What was passed
on, and what befell whom, can be looked at afterwards.
"""

from __future__ import annotations

import http.client
import random
import socket
import threading
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from braidlog import limits
from braidlog.errors import InvalidArgument

Fault: TypeAlias = Literal[
    "slow down",  # 503 SlowDown, and nothing is passed on
    "drop request",  # the connection ends, and nothing is passed on
    "drop response",  # it is passed on and carried out, and the connection ends
    "hold response",  # it is passed on and carried out, and the answer comes too late for whoever waits for it
    "delay",  # it is passed on after a while
    "cut response",  # half of the answer comes
]

FAULTS: Final[tuple[Fault, ...]] = get_args(Fault)
_BUSY: Final = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
_NOT_PASSED_ON: Final = ("connection", "keep-alive", "transfer-encoding", "content-length")


class Request(NamedTuple):
    """One that came, and what befell it."""

    method: str
    path: str
    fault: Fault | None


class S3Faults:
    """Use it as a context manager, or `close` it. `rates` are the chances of faults that the seed decides."""

    def __init__(
        self,
        target: int,
        *,
        seed: int = 0,
        rates: Mapping[Fault, float] | None = None,
        delay_s: float = 0.05,
        hold_s: float = 60.0,
    ) -> None:
        if unknown := set(rates or ()) - set(FAULTS):
            raise InvalidArgument(f"{unknown.pop()!r} is no fault: there are {', '.join(FAULTS)}")
        self._target = target
        self._rates = dict(rates or {})
        self._seed = seed
        self._delay_s = delay_s
        self._hold_s = hold_s
        self._lock = threading.Lock()
        self._scripts: dict[str, deque[Fault | None]] = defaultdict(deque)
        self._numbers: dict[str, int] = defaultdict(int)
        self._down = False
        self._ended = threading.Event()
        self.requests: list[Request] = []
        self._under_way = 0
        self.most_under_way = 0  # at the same moment
        self._server = _Server(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(limits.PROCESS_POLL_S,), name="s3-faults", daemon=True
        )
        self._thread.start()

    def __enter__(self) -> S3Faults:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def script(self, method: str, faults: Iterable[Fault | None]) -> None:
        """What befalls the next requests of a method; None lets one pass. Then the seed decides again."""
        with self._lock:
            self._scripts[method].extend(faults)

    def down(self) -> None:
        """From now on every connection ends at once, until `up`."""
        self._down = True

    def up(self) -> None:
        self._down = False

    def befell(self, fault: Fault) -> int:
        """How many requests met it."""
        with self._lock:
            return sum(request.fault == fault for request in self.requests)

    def close(self) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # --- one request ---------------------------------------------------------------------------------------------

    def fate(self, method: str, path: str) -> Fault | None:
        with self._lock:
            script = self._scripts[method]
            fault = script.popleft() if script else self._chance(method)
            if self._down:
                fault = "drop request"
            self.requests.append(Request(method, path, fault))
            return fault

    def _chance(self, method: str) -> Fault | None:
        self._numbers[method] += 1
        chance = random.Random(f"{self._seed} {method} {self._numbers[method]}").random()
        for fault, rate in self._rates.items():
            chance -= rate
            if chance < 0:
                return fault
        return None

    def count(self, change: int) -> None:
        with self._lock:
            self._under_way += change
            self.most_under_way = max(self.most_under_way, self._under_way)

    def wait(self, fault: Fault | None) -> None:
        """As long as the fault says, or until the proxy is closed."""
        if fault in ("delay", "hold response"):
            self._ended.wait(self._delay_s if fault == "delay" else self._hold_s)

    def pass_on(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> http.client.HTTPResponse:
        line = http.client.HTTPConnection("127.0.0.1", self._target, timeout=limits.CALL_TIMEOUT_S)
        line.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            if name.lower() not in ("connection", "expect"):
                line.putheader(name, value)
        line.putheader("Connection", "close")
        line.endheaders(body)
        return line.getresponse()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128


def _handler_of(proxy: S3Faults) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            fault = proxy.fate(self.command, self.path)
            proxy.count(1)
            try:
                if fault == "drop request":
                    self._hang_up()
                elif fault == "slow down":
                    self._answer(503, {"Content-Type": "application/xml"}, _BUSY)
                else:
                    self._relay(fault, body)
            finally:
                proxy.count(-1)

        def _relay(self, fault: Fault | None, body: bytes) -> None:
            if fault == "delay":
                proxy.wait(fault)
            try:
                answer = proxy.pass_on(self.command, self.path, dict(self.headers.items()), body)
                data = answer.read()
            except (OSError, http.client.HTTPException):  # the server itself is down
                self._hang_up()
                return
            if fault == "hold response":
                proxy.wait(fault)
            if fault in ("drop response", "hold response"):
                self._hang_up()
                return
            headers = {name: value for name, value in answer.getheaders() if name.lower() not in _NOT_PASSED_ON}
            size = answer.getheader("content-length") if self.command == "HEAD" else None
            self._answer(answer.status, headers, data, size=size, cut=fault == "cut response")

        def _answer(
            self, status: int, headers: Mapping[str, str], data: bytes, *, size: str | None = None, cut: bool = False
        ) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", size or str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data[: len(data) // 2] if cut else data)
            if cut:
                self.wfile.flush()
                self._hang_up()

        def _hang_up(self) -> None:
            self.close_connection = True
            try:
                self.connection.shutdown(socket.SHUT_RDWR)
            except OSError:  # whoever asked is gone already
                pass

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: what befell whom is in `requests`."""

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _handle

    return Handler
