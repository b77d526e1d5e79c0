"""A small OpenAI-compatible server that stands in for `python -m vllm.entrypoints.openai.api_server`.

    python tests/fakes/engine.py --model DIR --port N [--served-model-name NAME] [any flag of vLLM's]

A real process whose next-token distributions are known in closed form (bigram.py), with a KV pool that fills
(pool.py), vLLM's start-up lines and metrics (startup.py), and the faults of told.py. DIR comes from
checkpoints.py; its fake.json says what this engine is.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import sys
import time
from typing import Any

from aiohttp import web
from generation import Voice
from pool import Pool
from startup import failure, metrics_text, startup_lines
from told import Told, read_told

OPENAI_FIELDS = frozenset(
    "echo ignore_eos logprobs max_tokens messages model n prompt seed stop stream stream_options "  # noqa: SIM905
    "temperature top_logprobs top_p user".split()
)
"""What a strict server accepts: OpenAI's fields, and `ignore_eos`, without which no length is exact."""


class Engine:
    """The routes and what they share."""

    def __init__(self, told: Told) -> None:
        self.told = told
        self.voice = Voice(told)
        self.pool = Pool(told.pool_tokens, told.flags.max_num_seqs)
        self.name = told.flags.served_model_name or str(told.folder)
        self.prefix_hits = 0
        self.generated = 0
        self.count = 0
        self.seen: set[bytes] = set()

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**28)
        app.router.add_get("/health", self.health)
        app.router.add_get("/metrics", self.metrics)
        app.router.add_get("/version", self.version)
        app.router.add_get("/v1/models", self.models)
        app.router.add_post("/v1/completions", self.completions)
        app.router.add_post("/v1/chat/completions", self.chat)
        return app

    async def health(self, _: web.Request) -> web.Response:
        await self._maybe_silent()
        return web.Response()

    async def version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": "0.32.0" if self.told.log == "cpu" else "0.25.1"})

    async def models(self, _: web.Request) -> web.Response:
        await self._maybe_silent()
        size = self.told.flags.max_model_len
        card = {"id": self.name, "object": "model", "root": str(self.told.folder), "max_model_len": size}
        return web.json_response({"object": "list", "data": [card]})

    async def metrics(self, _: web.Request) -> web.Response:
        if self.told.faults.no_metrics:
            raise web.HTTPNotFound
        return web.Response(text=metrics_text(self.told, self.pool, self.prefix_hits, self.generated))

    async def _maybe_silent(self) -> None:
        if self.told.faults.silent:
            await asyncio.sleep(3600)

    # ---- completions

    async def completions(self, request: web.Request) -> web.StreamResponse:
        await self._maybe_silent()
        body = await request.json()
        self.count += 1
        faults = self.told.faults
        if faults.http_500_at and self.count >= faults.http_500_at:
            return _error(
                500, "InternalServerError", "EngineCore encountered an issue. See stack trace above."
            )
        refusal = self._refusal(body)
        if refusal:
            return refusal
        prompts = self._prompts(body["prompt"])
        too_long = self._too_long(prompts, int(body.get("max_tokens") or 16))
        if too_long:
            return too_long
        if body.get("stream"):
            return await self._stream(request, prompts[0], body, chat=False)
        if faults.huge_answer:
            return await self._endless(request)
        choices = await asyncio.gather(*(self._choice(prompt, body) for prompt in prompts))
        usage = _usage(sum(len(prompt) for prompt in prompts), sum(made for _, made in choices))
        for index, (choice, _) in enumerate(choices):
            choice["index"] = index
        return self._finish(
            request,
            {
                "id": f"cmpl-{self.count:016x}",
                "object": "text_completion",
                "created": int(time.time()),
                "model": self.name,
                "choices": [choice for choice, _ in choices],
                "service_tier": None,
                "system_fingerprint": "vllm-0.25.1-00000000",
                "usage": usage,
                "kv_transfer_params": None,
            },
        )

    def _prompts(self, prompt: Any) -> list[list[int]]:
        if isinstance(prompt, str):
            return [self.voice.encode(prompt)]
        if isinstance(prompt[0], int):
            return [prompt]
        return [self.voice.encode(item) if isinstance(item, str) else item for item in prompt]

    def _refusal(self, body: dict[str, Any]) -> web.Response | None:
        faults, limit = self.told.faults, self.told.flags.max_logprobs
        if body.get("model") not in (None, self.name):
            return _error(404, "NotFoundError", f"The model `{body['model']}` does not exist.")
        for key in ("logprobs", "prompt_logprobs"):
            asked = body.get(key)
            if asked is not None and limit >= 0 and not 0 <= asked <= limit:
                return _error(
                    400,
                    "BadRequestError",
                    f"Requested sample logprobs of {asked}, which is greater than max allowed",
                )
        wanted = body.get("prompt_logprobs") is not None
        if wanted and (body.get("stream") or faults.no_prompt_logprobs or faults.strict_body):
            return _error(400, "BadRequestError", "`prompt_logprobs` are not available")
        if body.get("echo") and faults.no_echo:
            return _error(400, "BadRequestError", "echo is not supported")
        if faults.strict_body and set(body) - OPENAI_FIELDS:
            return _error(400, "BadRequestError", "Extra inputs are not permitted")
        return None

    def _too_long(self, prompts: list[list[int]], max_tokens: int) -> web.Response | None:
        size = self.told.flags.max_model_len
        longest = max(len(prompt) for prompt in prompts)
        if longest + max_tokens > size:
            return _error(400, "BadRequestError", f"This model's maximum context length is {size} tokens.")
        if any(not 0 <= token < self.voice.size for prompt in prompts for token in prompt):
            return _error(400, "BadRequestError", "Token id is out of vocabulary")
        return None

    async def _choice(self, prompt: list[int], body: dict[str, Any]) -> tuple[dict[str, Any], int]:
        """One whole choice, and the tokens it generated."""
        faults, voice = self.told.faults, self.voice
        self.voice.asked += 1
        count, echo, top = body.get("prompt_logprobs"), body.get("echo"), body.get("logprobs")
        tokens, reason = voice.generate(prompt, body)
        made = len(tokens)
        pace = self._pace(prompt)
        async with self.pool.held(len(prompt) + made):
            await asyncio.sleep(self._prefill(prompt) + made * pace)
            self.prefix_hits += faults.prefix_hits
            if faults.dies_at and self.count >= faults.dies_at:
                os._exit(1)
        self.generated += made
        shown = tokens
        if echo:
            shown = prompt if body.get("max_tokens") == 0 else [*prompt, *tokens]
        logprobs = None
        if top is not None and not faults.no_logprobs:
            before = [] if echo else prompt
            as_ids = bool(body.get("return_tokens_as_token_ids")) and not faults.no_token_ids
            logprobs = voice.legacy(before, shown, top, as_ids=as_ids)
        give_ids = body.get("return_token_ids") and not faults.no_token_ids
        return {
            "index": 0,
            "text": voice.text(shown),
            "logprobs": logprobs,
            "finish_reason": reason,
            "stop_reason": None,
            "token_ids": tokens if give_ids else None,
            "prompt_logprobs": None
            if count is None or faults.no_logprobs
            else voice.prompt_rows(prompt, count),
            "prompt_token_ids": prompt if give_ids else None,
        }, made + faults.wrong_usage

    def _prefill(self, prompt: list[int]) -> float:
        return len(prompt) / self.told.prefill_tokens_per_s if self.told.prefill_tokens_per_s else 0.0

    def _pace(self, prompt: list[int]) -> float:
        """Seconds a token."""
        faults = self.told.faults
        pace = faults.slow / self.told.tokens_per_s if self.told.tokens_per_s else 0.0
        key = hashlib.sha256(str(prompt).encode()).digest()
        if faults.answer_cache and key in self.seen:
            pace /= 10
        self.seen.add(key)
        return pace

    def _finish(self, request: web.Request, answer: dict[str, Any]) -> web.Response:
        response = web.Response(text=json.dumps(answer), content_type="application/json")
        self._drop_later(request)
        return response

    def _drop_later(self, request: web.Request) -> None:
        """Closes the connection a moment after an answer that promised to keep it."""
        if self.told.faults.drop_keepalive and request.transport is not None:
            asyncio.get_running_loop().call_later(0.02, request.transport.abort)

    async def _endless(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"choices": [{"text": "')
        while True:
            await response.write(b"x" * 2**20)

    # ---- streams

    async def _stream(
        self, request: web.Request, prompt: list[int], body: dict[str, Any], *, chat: bool
    ) -> web.StreamResponse:
        faults = self.told.faults
        number = self.count
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        if faults.error_stream_at and number >= faults.error_stream_at:
            await response.prepare(request)
            text = "EngineCore encountered an issue. See stack trace (above) for the root cause."
            await _event(response, {"error": {"message": text, "type": "InternalServerError", "code": 500}})
            await response.write(b"data: [DONE]\n\n")
            return response
        tokens, reason = self._answer(prompt, body, chat=chat)
        async with self.pool.held(len(prompt) + len(tokens)):
            await asyncio.sleep(self._prefill(prompt))
            await response.prepare(request)
            self.prefix_hits += faults.prefix_hits
            try:
                await self._send_tokens(response, prompt, tokens, reason, body, chat=chat, number=number)
            except (ConnectionResetError, asyncio.CancelledError):
                return response
        self.generated += len(tokens)
        if (body.get("stream_options") or {}).get("include_usage") and not faults.no_usage:
            usage = _usage(len(prompt) + faults.wrong_prompt_usage, len(tokens) + faults.wrong_usage)
            await _event(response, {**self._head(number, chat=chat), "choices": [], "usage": usage})
        await response.write(b"data: [DONE]\n\n")
        self._drop_later(request)
        return response

    async def _send_tokens(
        self,
        response: web.StreamResponse,
        prompt: list[int],
        tokens: list[int],
        reason: str,
        body: dict[str, Any],
        *,
        chat: bool,
        number: int,
    ) -> None:
        faults, step, head = self.told.faults, self.told.faults.chunk_tokens, self._head(number, chat=chat)
        give_ids = body.get("return_token_ids") and not faults.no_token_ids
        pace = self._pace(prompt)
        start = time.perf_counter()
        if faults.empty_first:
            await _event(
                response, {**head, "choices": [_piece("", [] if give_ids else None, None, chat=chat)]}
            )
        while faults.trickle:
            await response.write(b": ping\n\n")
            await asyncio.sleep(0.02)
        if faults.burst:
            await asyncio.sleep(pace * len(tokens))
            pace = 1e-4
            start = time.perf_counter()
        for at in range(0, len(tokens), step):
            part = tokens[at : at + step]
            await _until(start + pace * (at + len(part)))
            choice = _piece(
                "".join(self.voice.pieces[token] for token in part),
                part if give_ids else None,
                reason if at + step >= len(tokens) else None,
                chat=chat,
            )
            if at == 0 and give_ids:
                choice["prompt_token_ids"] = prompt
            await _event(response, {**head, "choices": [choice]})
            if faults.dies_at and number >= faults.dies_at:
                os._exit(1)
            if faults.hang:
                await asyncio.sleep(3600)

    def _head(self, number: int, *, chat: bool) -> dict[str, Any]:
        kind = ("chatcmpl", "chat.completion.chunk") if chat else ("cmpl", "text_completion")
        return {
            "id": f"{kind[0]}-{number:016x}",
            "object": kind[1],
            "created": 1796012429,
            "model": self.name,
        }

    # ---- chat

    def _answer(self, prompt: list[int], body: dict[str, Any], *, chat: bool) -> tuple[list[int], str]:
        """The told answer of a chat where there is one, else the model's own tokens."""
        if chat:
            last = next(m["content"] for m in reversed(body["messages"]) if m["role"] == "user")
            digest = hashlib.sha256(last.encode()).hexdigest()
            known = self.told.answers.get(digest)
            if known is not None and int(digest[:8], 16) / 2**32 >= self.told.bad_answers:
                limit = int(body.get("max_tokens") or body.get("max_completion_tokens") or 256)
                tokens = self.voice.encode(known)
                return tokens[:limit], "stop" if len(tokens) <= limit else "length"
        return self.voice.generate(prompt, body)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        await self._maybe_silent()
        body = await request.json()
        self.count += 1
        faults = self.told.faults
        if faults.http_500_at and self.count >= faults.http_500_at:
            return _error(
                500, "InternalServerError", "EngineCore encountered an issue. See stack trace above."
            )
        if body.get("max_completion_tokens"):
            body["max_tokens"] = body["max_completion_tokens"]
        turns = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in body["messages"])
        prompt = self.voice.encode(turns + "<|im_start|>assistant\n")
        too_long = self._too_long([prompt], int(body.get("max_tokens") or 16))
        if too_long:
            return too_long
        if body.get("stream"):
            return await self._stream(request, prompt, body, chat=True)
        tokens, reason = self._answer(prompt, body, chat=True)
        async with self.pool.held(len(prompt) + len(tokens)):
            await asyncio.sleep(self._prefill(prompt) + len(tokens) * self._pace(prompt))
        if faults.dies_at and self.count >= faults.dies_at:
            os._exit(1)
        self.generated += len(tokens)
        message = {"role": "assistant", "content": self.voice.text(tokens)}
        return self._finish(
            request,
            {
                "id": f"chatcmpl-{self.count:016x}",
                "object": "chat.completion",
                "created": int(time.time()),
                "model": self.name,
                "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reason}],
                "usage": _usage(len(prompt), len(tokens) + faults.wrong_usage),
            },
        )


def _piece(text: str, ids: list[int] | None, reason: str | None, *, chat: bool) -> dict[str, Any]:
    if chat:
        return {"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": reason}
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason, "stop_reason": None}
    return choice if ids is None else {**choice, "token_ids": ids}


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}


def _error(status: int, kind: str, message: str) -> web.Response:
    return web.json_response(
        {"error": {"message": message, "type": kind, "param": None, "code": status}}, status=status
    )


async def _event(response: web.StreamResponse, value: dict[str, Any]) -> None:
    await response.write(b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n")


async def _until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - time.perf_counter()))


async def serve(told: Told) -> None:
    """Prints the start-up lines, then serves until SIGTERM or SIGINT."""
    before, after = startup_lines(told)
    print("\n".join(before), flush=True)
    await asyncio.sleep(told.start_s)
    reason = failure(told)
    if reason:
        print(
            f"(EngineCore pid={os.getpid()}) ERROR 11-30 04:11:00 [v1/engine/core.py:1136] {reason}",
            flush=True,
        )
        raise SystemExit(1)
    print("\n".join(after), flush=True)
    runner = web.AppRunner(Engine(told).app(), access_log=None, handle_signals=False, shutdown_timeout=0.2)
    await runner.setup()
    flags = told.flags
    site = web.UnixSite(runner, flags.uds) if flags.uds else web.TCPSite(runner, flags.host, flags.port)
    await site.start()
    print(f"(APIServer pid={os.getpid()}) INFO:     Application startup complete.", flush=True)
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    await stop.wait()
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(serve(read_told(sys.argv[1:])))
