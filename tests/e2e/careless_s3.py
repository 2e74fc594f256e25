"""A server that speaks S3 and ignores conditions, as some do: it takes `If-None-Match` and replaces what is there."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape


@contextmanager
def careless_s3() -> Iterator[str]:
    """Its endpoint, while it runs."""
    kept: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            kept[self._key] = self.rfile.read(int(self.headers["content-length"]))
            self._answer(200, b"", {"ETag": '"x"'})

        def do_GET(self) -> None:
            if self._key.count("/") < 2:  # of the bucket itself
                self._answer(200, self._listing())
            elif self._key not in kept:
                self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            elif wanted := self.headers["range"]:
                data = kept[self._key]
                first, last = (int(part) for part in wanted.removeprefix("bytes=").split("-"))
                if first >= len(data):
                    self._answer(416, b"")
                    return
                last = min(last, len(data) - 1)
                head = {"Content-Range": f"bytes {first}-{last}/{len(data)}", "ETag": '"x"', "Last-Modified": _WHEN}
                self._answer(206, data[first : last + 1], head)
            else:
                self._answer(200, kept[self._key], {"ETag": '"x"', "Last-Modified": _WHEN})

        def do_HEAD(self) -> None:
            found = kept.get(self._key)
            self._answer(404 if found is None else 200, found or b"", {"ETag": '"x"', "Last-Modified": _WHEN})

        def do_POST(self) -> None:
            """Several are deleted at once."""
            asked = self.rfile.read(int(self.headers["content-length"])).decode()
            keys = re.findall(r"<Key>(.*?)</Key>", asked)
            for key in keys:
                kept.pop(f"{self._key.rstrip('/')}/{unescape(key)}", None)
            told = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
            self._answer(200, f"<DeleteResult>{told}</DeleteResult>".encode())

        @property
        def _key(self) -> str:
            return unquote(urlsplit(self.path).path)

        def _listing(self) -> bytes:
            prefix = parse_qs(urlsplit(self.path).query).get("prefix", [""])[0]
            bucket = self._key.rstrip("/") + "/"
            rows = "".join(
                f"<Contents><Key>{escape(key.removeprefix(bucket))}</Key><Size>{len(data)}</Size><ETag>x</ETag>"
                "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
                for key, data in sorted(kept.items())
                if key.startswith(bucket + prefix)
            )
            return f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>".encode()

        def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response_only(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


_WHEN = "Thu, 01 Jan 2026 00:00:00 GMT"
