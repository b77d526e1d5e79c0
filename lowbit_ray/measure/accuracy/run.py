"""Asks a running server all items over /v1/chat/completions; the answers are judged later, without it.

Greedy, at most the domain's `max_tokens` generated, as many requests in flight as the plan says. A request
that fails is asked once more after the others; what fails again is recorded as unanswered, with its reason
and without any text. A server that fails two rounds of requests in a row is not asked any further: one that
hangs would cost its time limit for each of hundreds of items.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp

from lowbit_ray.errors import EngineAnswerError
from lowbit_ray.measure.accuracy.answers import Answer, Answers
from lowbit_ray.measure.accuracy.items import Item, items_digest
from lowbit_ray.measure.endpoint import Endpoint, connect, post_json, told_count
from lowbit_ray.measure.load import Progress
from lowbit_ray.tasks import AccuracyPlan

__all__ = ["collect_answers"]

ROUTE = "/v1/chat/completions"
REPLY_BYTES, BYTES_A_TOKEN = 2**18, 2**9
"""Of a reply to one item at most: what stands beside its text, and each token of it, as JSON spells it."""
NOT_ASKED = "not asked after"
SETTLE_S = 2.0
"""A server that dies closes its connections before it is gone: whoever looks after it then finds it dead."""


async def collect_answers(
    endpoint: Endpoint,
    items: Sequence[Item],
    plan: AccuracyPlan,
    *,
    timeout_s: float,
    template_arguments: Mapping[str, str | bool] | None = None,
    progress: Progress | None = None,
) -> Answers:
    """One answer an item, in the items' order.

    `timeout_s` bounds a whole request. `template_arguments` go to the chat template (`chat_template_kwargs`,
    such as enable_thinking), for servers that know the field. `progress` is told the answers so far and all
    items. Raises EngineAnswerError where the server answers none of the items.
    """
    arguments = dict(template_arguments or {})
    started = time.monotonic()
    async with connect(endpoint, timeout_s=timeout_s) as session:
        asker = _Asker(session, endpoint, plan, arguments, timeout_s, progress or _silent, len(items))
        answers = await asker.ask_all(items)
        failed = [index for index, answer in enumerate(answers) if answer.error is not None]
        again = await asker.ask_all([items[index] for index in failed])
        for index, answer in zip(failed, again, strict=True):
            if not (answer.error or "").startswith(NOT_ASKED):  # why it failed says more
                answers[index] = answer
    if any(answer.error is not None for answer in answers):
        await asyncio.sleep(SETTLE_S)
    if items and all(answer.error is not None for answer in answers):
        raise EngineAnswerError(
            "the server answers none of the accuracy items",
            where=ROUTE,
            found=answers[0].error,
            expected=f"{len(items)} answers",
            remedy="Look at the server's log.",
        )
    return Answers(
        items_digest=items_digest(items), answers=tuple(answers), wall_s=time.monotonic() - started
    )


def _silent(answered: int, total: int) -> None:
    """Progress that nobody looks at."""


class _Asker:
    """Sends requests, and gives up on a server that only fails."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        endpoint: Endpoint,
        plan: AccuracyPlan,
        arguments: Mapping[str, str | bool],
        timeout_s: float,
        progress: Progress,
        total: int,
    ) -> None:
        self.session = session
        self.endpoint = endpoint
        self.plan = plan
        self.arguments = arguments
        self.timeout_s = timeout_s
        self.gate = asyncio.Semaphore(plan.max_concurrency)
        self.progress = progress
        self.total = total
        self.answered = 0
        self.failures_in_a_row = 0

    async def ask_all(self, items: Sequence[Item]) -> list[Answer]:
        return list(await asyncio.gather(*(self.ask(item) for item in items)))

    async def ask(self, item: Item) -> Answer:
        """One item's answer; a failure of the server becomes its `error`."""
        async with self.gate:
            if self.failures_in_a_row >= 2 * self.plan.max_concurrency:
                return Answer(
                    item_id=item.id, error=f"{NOT_ASKED} {self.failures_in_a_row} failures in a row"
                )
            body = self.request(item)
            try:
                async with asyncio.timeout(self.timeout_s):
                    most = REPLY_BYTES + BYTES_A_TOKEN * body["max_tokens"]
                    reply = await post_json(self.session, self.endpoint, ROUTE, body, max_bytes=most)
                answer = _answer(item.id, reply, body["max_tokens"])
            except TimeoutError:
                answer = Answer(item_id=item.id, error=f"no reply within {self.timeout_s:g} s")
            except EngineAnswerError as error:
                answer = Answer(item_id=item.id, error=str(error))
            if answer.error is None:
                self.failures_in_a_row = 0
                self.answered += 1
                self.progress(self.answered, self.total)
            else:
                self.failures_in_a_row += 1
            return answer

    def request(self, item: Item) -> dict[str, Any]:
        """The request's JSON."""
        body: dict[str, Any] = {
            "model": self.endpoint.model,
            "messages": [message.model_dump() for message in item.messages],
            "max_tokens": self.plan.domains[item.domain].max_tokens,
            "temperature": 0,
            "stream": False,
        }
        if self.arguments:  # servers that do not know the field may refuse it
            body["chat_template_kwargs"] = dict(self.arguments)
        return body


def _answer(item_id: str, reply: Mapping[str, Any], max_tokens: int) -> Answer:
    """Reads a reply; EngineAnswerError names the first field that is not as the API has it."""
    choices = reply.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise _unlike("choices[0].message", message, "an object")
    # a server that splits reasoning off leaves content null where the answer never came to its end
    text = message.get("content")
    if text is not None and not isinstance(text, str):
        raise _unlike("choices[0].message.content", text, "a string")
    usage = reply.get("usage")
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 0:
        raise _unlike("usage.completion_tokens", tokens, "a count")
    if tokens > max_tokens or (text and tokens == 0):
        raise EngineAnswerError(
            "the number of generated tokens is not credible",
            where=f"{ROUTE}: usage.completion_tokens",
            found=told_count(tokens),
            expected=f"1 to {max_tokens}",
        )
    reason = choice.get("finish_reason")
    return Answer(
        item_id=item_id,
        text=text or "",
        completion_tokens=tokens,
        finish_reason=reason if reason in ("stop", "length") else "other",
    )


def _unlike(field: str, found: object, expected: str) -> EngineAnswerError:
    return EngineAnswerError(
        "the reply is not as the API has it",
        where=f"{ROUTE}: {field}",
        found=type(found).__name__,
        expected=expected,
    )
