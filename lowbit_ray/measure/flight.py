"""Requests in flight: what the load client does while the clock runs, and nothing beside.

Each read is kept with its moment. One task watches all requests for silence and for taking too long, since a
timer a read would cost as much as the read; the same task notes by how much the client itself wakes late.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence

import aiohttp

from lowbit_ray.errors import EngineAnswerError
from lowbit_ray.measure.busy import answering
from lowbit_ray.measure.endpoint import CONNECT_S, WHOLE_ANSWER, raise_for_status, wire_errors
from lowbit_ray.measure.stream import COMPLETIONS, Read, mentions_error, raise_error

__all__ = ["Flights"]

HEADERS = {"Content-Type": "application/json"}
NAP_S = 0.1
BYTES_A_READ = 2**7
"""What keeping one read takes beside its bytes: they count towards the largest answer, as a server may send each
byte by itself."""
READ_BYTES = 2**14
"""Longest single read. asyncio asks for 256 KiB by default and gives most of it back, which costs more than the
read of a token does."""


class Flights:
    """Sends bodies one after the other on each of several workers; keeps bytes and moments by request."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        bodies: Sequence[bytes],
        output_len: int,
        max_bytes: int,
        heard: Callable[[int], None],
        *,
        ripe_at: int = 0,
        ripe: Callable[[], None] = lambda: None,
    ) -> None:
        self.session, self.url, self.bodies, self.max_bytes = session, url, bodies, max_bytes
        self.output_len = output_len
        """Tokens of each answer."""
        self.heard = heard
        """Called now and then with the tokens so far, as far as reads tell them."""
        self.ripe_at, self.ripe = ripe_at, ripe
        """Called when a request has been read so many times."""
        self.timeout_s = session.timeout.sock_read or CONNECT_S
        self.submitted_s = [0.0] * len(bodies)
        self.reads: list[list[Read]] = [[] for _ in bodies]
        self.lag_s = 0.0
        """Longest time by which the client woke late."""
        self._queue: Iterator[int] = iter(range(len(bodies)))
        self._limits: dict[int, asyncio.Timeout] = {}
        self._start = time.perf_counter()
        self._done = 0

    async def watch(self) -> None:
        """Ends requests that are silent or endless, and says how far all are; until cancelled."""
        while True:
            self.heard(self._tokens())
            due = time.perf_counter() + NAP_S
            await asyncio.sleep(NAP_S)
            now = time.perf_counter()
            self.lag_s = max(self.lag_s, now - due)
            for index, limit in self._limits.items():
                submitted, reads = self.submitted_s[index], self.reads[index]
                heard = reads[-1].at_s if reads else submitted
                silent = now - self._start - heard > self.timeout_s
                if (
                    silent or now - self._start - submitted > WHOLE_ANSWER * self.timeout_s
                ) and not limit.expired():
                    limit.reschedule(0)

    async def work(self, fault: Callable[[int, EngineAnswerError], EngineAnswerError]) -> None:
        """One worker: the next request as one ends; `fault` says which request an error is of."""
        for index in self._queue:
            try:
                await self._fly(index)
            except EngineAnswerError as error:
                raise fault(index, error) from None
            finally:
                self._limits.pop(index, None)
            self._done += 1
            self.heard(self._tokens())

    def _tokens(self) -> int:
        """Tokens so far, where each came in a read of its own."""
        flying = sum(min(len(self.reads[index]), self.output_len) for index in self._limits)
        return self._done * self.output_len + flying

    async def _fly(self, index: int) -> None:
        reads, size, clock, start = self.reads[index], 0, time.perf_counter, self._start
        suspected = False
        self.submitted_s[index] = clock() - start
        patient = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)  # `watch` does the rest
        with answering(), wire_errors(COMPLETIONS):
            async with (
                asyncio.timeout(None) as self._limits[index],
                self.session.post(
                    self.url,
                    data=self.bodies[index],
                    headers=HEADERS,
                    timeout=patient,
                    allow_redirects=False,
                ) as response,
            ):
                await raise_for_status(response, COMPLETIONS)
                _read_little(response)
                async for data in response.content.iter_any():
                    reads.append(Read(clock() - start, data))
                    size += len(data) + BYTES_A_READ
                    if len(reads) == self.ripe_at:
                        self.ripe()
                    if size > self.max_bytes:
                        raise EngineAnswerError(
                            "the answer is too large", where=COMPLETIONS, found=f"> {self.max_bytes} bytes"
                        )
                    if not suspected and mentions_error(data):
                        suspected = True  # once: read_row finds what comes later
                        raise_error(reads)


def _read_little(response: aiohttp.ClientResponse) -> None:
    """Makes asyncio ask the socket for READ_BYTES at a time, where its transport lets itself be told."""
    transport = response.connection.transport if response.connection else None
    if transport is not None and hasattr(transport, "max_size"):
        transport.max_size = READ_BYTES
