"""Engines that behave in one particular way, as small real programs of the standard library.

    python servers.py MODE          (the port is in LOWBIT_PORT)

good       answers /health and completions
daemon     double-forks and setsids a good one, then exits with 0
family     a good one with a child, a setsid grandchild and one that ignores SIGTERM
stubborn   a good one that ignores SIGTERM
naked      a good one whose grandchild has wiped its environment and fled by a double fork
slow N     good after N seconds
healthy    /health is 200 for ever, completions are 500
silent     accepts and never answers
drip       answers one byte a second, for ever
dies       prints the traceback of a failed start, ending with DIES_WITH, and exits with 1
quits      exits with 0 at once
crashes    ends itself with SIGSEGV
killed     ends itself with SIGKILL
mortal     good for one completion, then /health only
big N      good, and holds N MiB
grows N    good, and holds N MiB from its second completion on
environ    good; prints its environment and arguments first
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MODE = sys.argv[1]
ARGUMENT = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
completions = 0
held = b""


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        self._wait()
        self._send(200, b"")

    def do_POST(self) -> None:
        global completions, held
        self._wait()
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        completions += 1
        if MODE == "healthy" or (MODE == "mortal" and completions > 1):
            return self._send(500, b'{"error": {"message": "the worker has died"}}')
        if MODE == "grows" and completions == 2:
            held = os.urandom(2**20) * int(ARGUMENT)
        choice = {"index": 0, "text": "x", "finish_reason": "length"}
        usage = {"prompt_tokens": len(request["prompt"]), "completion_tokens": 1}
        return self._send(200, json.dumps({"choices": [choice], "usage": usage}).encode())

    def _wait(self) -> None:
        if MODE == "silent":
            time.sleep(3600)
        if MODE == "drip":
            while True:
                self.wfile.write(b"H")
                time.sleep(1)

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve() -> None:
    ThreadingHTTPServer(("127.0.0.1", int(os.environ["LOWBIT_PORT"])), Handler).serve_forever()


def sleeper(*, session: bool = False, code: str = "") -> None:
    program = f"{code}\nimport time\ntime.sleep(3600)"
    subprocess.Popen([sys.executable, "-c", program], start_new_session=session)


def double_fork(wipe: bool) -> bool:
    """True in the grandchild, which has its own session and no living parent."""
    if os.fork():
        os.wait()
        return False
    os.setsid()
    if os.fork():
        os._exit(0)
    if wipe:
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(3600)"], {})
    return True


def main() -> None:
    if MODE == "dies":
        cause = os.environ.get("DIES_WITH", "ValueError: no such dtype: int3")
        print(f'Traceback (most recent call last):\n  File "x.py", line 1\n{cause}', flush=True)
        sys.exit(1)
    if MODE == "quits":
        sys.exit(0)
    if MODE in ("crashes", "killed"):
        os.kill(os.getpid(), signal.SIGSEGV if MODE == "crashes" else signal.SIGKILL)
    if MODE == "environ":
        print(
            json.dumps(
                {
                    "environ": dict(os.environ),
                    "argv": sys.argv,
                    "stdin": str(Path("/proc/self/fd/0").readlink()),
                }
            )
        )
        print(flush=True)
    if MODE == "daemon" and not double_fork(wipe=False):
        sys.exit(0)
    if MODE == "naked":
        double_fork(wipe=True)
    if MODE == "family":
        sleeper()
        sleeper(session=True)
        sleeper(code="import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    if MODE == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if MODE == "slow":
        time.sleep(ARGUMENT)
    global held
    if MODE == "big":
        held = os.urandom(2**20) * int(ARGUMENT)
    serve()


if __name__ == "__main__":
    main()
