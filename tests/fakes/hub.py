"""A small model hub: an HTTP server that speaks what we use of the Hugging Face hub's API, and misbehaves when told.

    python hub.py ROOT     prints its port, then serves ROOT/<owner>/<name>/<commit>/…

ROOT/faults.json, read anew for each request, may hold: `statuses` (list of codes answered first, one a request),
`drop_after` (bytes of a file after which the connection breaks, once a file), `hang_up_at` (position in each file
from which nothing is ever sent), `lie` (path whose bytes are sent
flipped), `no_ranges`, `redirect` (files are sent by a second address, as by a content network), `sha` (the commit
that revisions are said to be), `tags` (name → commit). ROOT/requests.jsonl gets a line a request.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

LFS_FROM = 4096
"""Files of this size and more are in LFS, with a SHA-256; smaller ones have git's own hash."""


class Hub(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.root = root
        self.lock = threading.Lock()
        self.dropped: set[str] = set()
        self.answered = 0

    def faults(self) -> dict[str, Any]:
        path = self.root / "faults.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def next_status(self, statuses: list[int]) -> int | None:
        with self.lock:
            self.answered += 1
            return statuses[self.answered - 1] if self.answered <= len(statuses) else None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        with self.server.lock, (self.server.root / "requests.jsonl").open("a") as log:
            headers = {key: self.headers.get(key) for key in ("Range", "Authorization", "Host")}
            log.write(json.dumps({"path": self.path, **headers}) + "\n")
        faults = self.server.faults()
        status = self.server.next_status(faults.get("statuses", []))
        if status is not None:
            self.answer(status, b"{}")
            return
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        if parts[:2] == ["api", "models"] and len(parts) == 6:
            self.describe("/".join(parts[2:4]), parts[5], faults)
        elif parts[0] == "cdn":
            self.send_file(self.server.root.joinpath(*parts[1:]), faults)
        elif len(parts) >= 5 and parts[2] == "resolve":
            self.resolve("/".join(parts[:2]), parts[3], "/".join(parts[4:]), faults)
        else:
            self.answer(404, b"{}")

    def describe(self, repository: str, revision: str, faults: dict[str, Any]) -> None:
        commit = faults.get("tags", {}).get(revision, revision)
        folder = self.server.root / repository / commit
        if not folder.is_dir():
            self.answer(404, b'{"error":"Repository not found"}')
            return
        files = [entry(folder, path) for path in sorted(folder.rglob("*")) if path.is_file()]
        body = {
            "id": repository,
            "sha": faults.get("sha", commit),
            "siblings": files + faults.get("siblings", []),
        }
        self.answer(200, json.dumps(body).encode())

    def resolve(self, repository: str, commit: str, path: str, faults: dict[str, Any]) -> None:
        if faults.get("redirect"):
            self.send_response(302)
            # another name of the same machine, so that it is another origin to a client
            address = f"http://localhost:{self.server.server_port}/cdn/{repository}/{commit}/{path}"
            self.send_header("Location", address)
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self.send_file(self.server.root / repository / commit / path, faults)

    def send_file(self, path: Path, faults: dict[str, Any]) -> None:
        if not path.is_file():
            self.answer(404, b"")
            return
        data = path.read_bytes()
        if faults.get("lie") == path.name:
            data = bytes([data[0] ^ 1]) + data[1:]
        start = 0
        wanted = self.headers.get("Range")
        if wanted and not faults.get("no_ranges"):
            start = int(wanted.removeprefix("bytes=").split("-")[0])
        end = self.last_byte(path.name, start, len(data), faults)
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        self.wfile.write(data[start:end])
        if end < len(data):
            self.wfile.flush()
            self.connection.close()
            self.close_connection = True

    def last_byte(self, name: str, start: int, size: int, faults: dict[str, Any]) -> int:
        """Where this answer ends, sooner than the file does if the faults say so."""
        if "hang_up_at" in faults:
            return max(min(size, faults["hang_up_at"]), start)
        with self.server.lock:
            drop = "drop_after" in faults and name not in self.server.dropped
            self.server.dropped.add(name)
        return min(size, start + faults["drop_after"]) if drop else size

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def entry(folder: Path, path: Path) -> dict[str, Any]:
    """One file as the API describes it with `blobs=true`."""
    data = path.read_bytes()
    found: dict[str, Any] = {"rfilename": path.relative_to(folder).as_posix(), "size": len(data)}
    found["blobId"] = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    if len(data) >= LFS_FROM:
        found["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
    return found


if __name__ == "__main__":
    hub = Hub(Path(sys.argv[1]))
    print(hub.server_port, flush=True)
    hub.serve_forever()
