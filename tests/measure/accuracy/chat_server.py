"""A small chat server, a real process: `python chat_server.py`; prints its port.

What it does follows the last user message. `say: TEXT` is answered with TEXT. Faults: `fail` (HTTP 500 whose
body quotes the message), `decline` (HTTP 400, quoting too), `hang`, `drop` (closes without an answer), `drop
once ID` (the first time only), `array`, `no choices`, `no usage`, `many tokens`, `spelled tokens` (a count whose
bytes are the text's), `false tokens`, `endless` (the text very often), `not json`, `null`, `length`. `busy`
answers after 50 ms with the largest number of requests that were in flight together. `body` answers with the
request's own fields.
"""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

lock = threading.Lock()
state = {"in_flight": 0, "most": 0}
dropped: set[str] = set()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        with lock:
            state["in_flight"] += 1
            state["most"] = max(state["most"], state["in_flight"])
        self.counted = True
        try:
            self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        finally:
            self.leave()

    def leave(self) -> None:
        """Not in flight any more: a client may send its next request as soon as it has this one's last byte."""
        if self.counted:
            self.counted = False
            with lock:
                state["in_flight"] -= 1

    def answer(self, body: dict[str, Any]) -> None:
        last = body["messages"][-1]["content"]
        order, _, rest = last.partition(": ")
        if order in ("fail", "decline"):
            self.send(500 if order == "fail" else 400, {"error": {"message": last, "type": last}})
        elif order == "hang":
            time.sleep(30)
        elif order == "drop" or (order.startswith("drop once") and order not in dropped):
            dropped.add(order)
            self.close_connection = True
        elif order == "array":
            self.send(200, [last])
        elif order == "not json":
            self.send_bytes(200, last.encode())
        elif order == "busy":
            time.sleep(0.05)
            self.reply(str(state["most"]))
        elif order == "body":
            self.reply(json.dumps({key: body[key] for key in sorted(body) if key != "messages"}))
        else:
            self.odd_or_plain(order, rest)

    def odd_or_plain(self, order: str, rest: str) -> None:
        if order == "no choices":
            self.send(200, {"choices": [], "usage": {"completion_tokens": 1}})
        elif order == "no usage":
            self.send(200, {"choices": [{"message": {"content": rest}, "finish_reason": "stop"}]})
        elif order == "many tokens":
            self.reply(rest, tokens=10**6)
        elif order == "spelled tokens":
            self.reply(rest, tokens=int.from_bytes(rest.encode()))
        elif order == "endless":
            self.reply(rest * 2**16)
        elif order == "false tokens":
            self.reply(rest, tokens=True)
        elif order == "null":
            self.reply(None)
        else:
            self.reply(rest, reason="length" if order == "length" else "stop")

    def reply(self, text: str | None, *, tokens: int | None = None, reason: str = "stop") -> None:
        counted = len((text or "x").split()) if tokens is None else tokens
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": reason}
        self.send(200, {"choices": [choice], "usage": {"completion_tokens": counted}})

    def send(self, status: int, value: Any) -> None:
        self.send_bytes(status, json.dumps(value).encode())

    def send_bytes(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.leave()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


if __name__ == "__main__":
    server = Server(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()
