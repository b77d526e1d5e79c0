"""A proxy before a server that loses answers or refuses, as it is told."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import urlsplit

__all__ = ["Lossy", "lossy"]

Fate = Literal["lose the answer", "conflict", "unavailable", "pass"]


class Lossy(ThreadingHTTPServer):
    """Forwards requests; `fate` says what becomes of each, from its method and path."""

    daemon_threads = True

    def __init__(self, server: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = urlsplit(server).netloc
        self.fate: Callable[[str, str], Fate] = lambda method, path: "pass"
        self.seen: list[tuple[str, str]] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Lossy

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fate = self.server.fate(self.command, self.path)
        self.server.seen.append((self.command, self.path))
        if fate == "conflict":
            self._refuse(409, "ConditionalRequestConflict")
        elif fate == "unavailable":
            self._refuse(503, "SlowDown")
        else:
            self._forward(body, lose=fate == "lose the answer")

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _handle  # noqa: N815  # http.server's names

    def _forward(self, body: bytes, *, lose: bool) -> None:
        upstream = http.client.HTTPConnection(self.server.target, timeout=30)
        upstream.request(self.command, self.path, body, dict(self.headers))
        answer = upstream.getresponse()
        content = answer.read()
        upstream.close()
        if lose:
            self.close_connection = True
            self.connection.close()
            return
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in {"transfer-encoding", "connection", "server", "date"}:
                self.send_header(name, value)
        if answer.getheader("Content-Length") is None:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _refuse(self, status: int, code: str) -> None:
        content = f"<Error><Code>{code}</Code><Message>told to</Message></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        pass

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (OSError, ValueError):  # the connection was closed on purpose
            self.close_connection = True


@contextmanager
def lossy(server: str) -> Iterator[Lossy]:
    """The proxy, for the length of the block."""
    proxy = Lossy(server)
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()
