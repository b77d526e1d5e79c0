"""A small OpenAI-compatible server that stands in for `python -m vllm.entrypoints.openai.api_server`.

    python tests/fakes/engine.py --model DIR --port N [--served-model-name NAME] [any flag of vLLM's]

A real process whose next-token distributions are known in closed form (bigram.py), with a KV pool that fills
(pool.py), vLLM's start-up lines and metrics (startup.py), and the faults of told.py. DIR comes from
checkpoints.py; its fake.json says what this engine is.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
import time
from typing import Any

from aiohttp import web
from startup import failure, metrics_text, startup_lines
from state import State
from streams import Answer, send
from told import Told, read_told
from wire import endless, error, refusal, usage, whole

OPENAI_FIELDS = frozenset(
    "echo ignore_eos logprobs max_tokens messages model n prompt seed stop stream stream_options "  # noqa: SIM905
    "temperature top_logprobs top_p user".split()
)
"""What a strict server accepts: OpenAI's fields, and `ignore_eos`, without which no length is exact."""


class Engine:
    """The routes."""

    def __init__(self, told: Told) -> None:
        self.state = State(told)

    @property
    def told(self) -> Told:
        return self.state.told

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**28)
        app.router.add_get("/health", self.health)
        app.router.add_get("/metrics", self.metrics)
        app.router.add_get("/version", self.version)
        app.router.add_post("/fake", self.tell)
        app.router.add_get("/v1/models", self.models)
        app.router.add_post("/v1/completions", self.completions)
        app.router.add_post("/v1/chat/completions", self.chat)
        return app

    async def health(self, _: web.Request) -> web.Response:
        await self._maybe_silent()
        return web.Response()

    async def tell(self, request: web.Request) -> web.Response:
        """Not vLLM's: fields of fake.json that hold from now on, all others as at the start."""
        self.state.tell(await request.json())
        return web.Response()

    async def version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": "0.32.0" if self.told.log == "cpu" else "0.25.1"})

    async def models(self, _: web.Request) -> web.Response:
        await self._maybe_silent()
        size = self.told.flags.max_model_len
        card = {
            "id": self.state.name,
            "object": "model",
            "root": str(self.told.folder),
            "max_model_len": size,
        }
        return web.json_response({"object": "list", "data": [card]})

    async def metrics(self, _: web.Request) -> web.Response:
        if self.told.faults.no_metrics:
            raise web.HTTPNotFound
        return web.Response(text=metrics_text(self.state))

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body, number, broken = await self._take(request)
        if broken:
            return broken
        declined = self._declined(body)
        if declined:
            return declined
        prompts = self._prompts(body["prompt"])
        too_long = self._too_long(prompts, int(body.get("max_tokens") or 16))
        if too_long:
            return too_long
        if body.get("stream"):
            tokens, reason = self.state.voice.generate(prompts[0], body)
            return await send(
                self.state, request, Answer(number, prompts[0], tokens, reason, body, chat=False)
            )
        if self.told.faults.huge_answer:
            return await endless(request)
        choices = await asyncio.gather(*(self._choice(prompt, body, number) for prompt in prompts))
        for index, (choice, _) in enumerate(choices):
            choice["index"] = index
        self.state.drop_later(request)
        return whole(
            {
                **self.state.head(number, chat=False),
                "created": int(time.time()),
                "choices": [choice for choice, _ in choices],
                "service_tier": None,
                "system_fingerprint": "vllm-0.25.1-00000000",
                "usage": usage(sum(len(prompt) for prompt in prompts), sum(made for _, made in choices)),
                "kv_transfer_params": None,
            }
        )

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body, number, broken = await self._take(request)
        if broken:
            return broken
        state = self.state
        body["max_tokens"] = body.get("max_completion_tokens") or body.get("max_tokens")
        turns = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in body["messages"])
        prompt = state.voice.encode(turns + "<|im_start|>assistant\n")
        too_long = self._too_long([prompt], int(body.get("max_tokens") or 16))
        if too_long:
            return too_long
        tokens, reason = self._chat_tokens(prompt, body)
        if body.get("stream"):
            return await send(state, request, Answer(number, prompt, tokens, reason, body, chat=True))
        async with state.admitted(len(prompt) + len(tokens)):
            await asyncio.sleep(state.prefill_s(prompt) + len(tokens) * state.pace_s(prompt))
        state.maybe_die(number)
        state.generated += len(tokens)
        state.drop_later(request)
        message = {"role": "assistant", "content": state.voice.text(tokens)}
        return whole(
            {
                **state.head(number, chat=True),
                "object": "chat.completion",
                "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reason}],
                "usage": usage(len(prompt), len(tokens) + self.told.faults.wrong_usage),
            }
        )

    async def _maybe_silent(self) -> None:
        if self.told.faults.silent:
            await asyncio.sleep(3600)

    async def _take(self, request: web.Request) -> tuple[dict[str, Any], int, web.Response | None]:
        """The request's body and number, and HTTP 500 where that is what the engine was told."""
        await self._maybe_silent()
        body = await request.json()
        self.state.count += 1
        limit = self.told.faults.http_500_at
        broken = error(500, "InternalServerError") if limit and self.state.count >= limit else None
        return body, self.state.count, broken

    def _declined(self, body: dict[str, Any]) -> web.Response | None:
        faults, limit = self.told.faults, self.told.flags.max_logprobs
        if body.get("model") not in (None, self.state.name):
            return error(404, "NotFoundError", f"The model `{body['model']}` does not exist.")
        for key in ("logprobs", "prompt_logprobs"):
            asked = body.get(key)
            if asked is not None and limit >= 0 and not 0 <= asked <= limit:
                return refusal(
                    f"Requested sample logprobs of {asked}, which is greater than max allowed: {limit}"
                )
        if body.get("prompt_logprobs") is not None and (body.get("stream") or faults.no_prompt_logprobs):
            return refusal("`prompt_logprobs` are not available")
        if body.get("echo") and faults.no_echo:
            return refusal("echo is not supported")
        if faults.strict_body and set(body) - OPENAI_FIELDS:
            return refusal("Extra inputs are not permitted")
        return None

    def _too_long(self, prompts: list[list[int]], max_tokens: int) -> web.Response | None:
        size = self.told.flags.max_model_len
        if max(len(prompt) for prompt in prompts) + max_tokens > size:
            return refusal(f"This model's maximum context length is {size} tokens.")
        if any(not 0 <= token < self.state.voice.size for prompt in prompts for token in prompt):
            return refusal(f"Token id is out of vocabulary: {prompts[0][:8]}")
        return None

    def _prompts(self, prompt: Any) -> list[list[int]]:
        encode = self.state.voice.encode
        if isinstance(prompt, str):
            return [encode(prompt)]
        if isinstance(prompt[0], int):
            return [prompt]
        return [encode(item) if isinstance(item, str) else item for item in prompt]

    async def _choice(
        self, prompt: list[int], body: dict[str, Any], number: int
    ) -> tuple[dict[str, Any], int]:
        """One whole choice, and the tokens it generated."""
        faults, state, voice = self.told.faults, self.state, self.state.voice
        voice.asked += 1
        count, top = body.get("prompt_logprobs"), body.get("logprobs")
        echo = body.get("echo") and not faults.ignores_echo
        tokens, reason = voice.generate(prompt, body)
        async with state.admitted(len(prompt) + len(tokens)):
            await asyncio.sleep(state.prefill_s(prompt) + len(tokens) * state.pace_s(prompt))
            state.maybe_die(number)
        state.generated += len(tokens)
        shown = tokens
        if echo:
            shown = prompt if body.get("max_tokens") == 0 else [*prompt, *tokens]
        logprobs = None
        if top is not None and not faults.no_logprobs:
            as_ids = bool(body.get("return_tokens_as_token_ids")) and not faults.no_token_ids
            logprobs = voice.legacy([] if echo else prompt, shown, top, as_ids=as_ids)
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
        }, len(tokens) + faults.wrong_usage

    def _chat_tokens(self, prompt: list[int], body: dict[str, Any]) -> tuple[list[int], str]:
        """The told answer where there is one, else the model's own tokens."""
        last = next(m["content"] for m in reversed(body["messages"]) if m["role"] == "user")
        digest = hashlib.sha256(last.encode()).hexdigest()
        known = self.told.answers.get(digest)
        if known is None or int(digest[:8], 16) / 2**32 < self.told.bad_answers:
            return self.state.voice.generate(prompt, body)
        limit = int(body.get("max_tokens") or 256)
        tokens = self.state.voice.encode(known)
        return tokens[:limit], "stop" if len(tokens) <= limit else "length"


def hold_cuda(gib: float) -> object:
    """So much of the GPU; torch's own out-of-memory error where it is not free."""
    if not gib:
        return None
    import torch

    return torch.empty(int(gib * 2**30), dtype=torch.uint8, device="cuda")


async def serve(told: Told) -> None:
    """Prints the start-up lines, then serves until SIGTERM or SIGINT."""
    before, after = startup_lines(told)
    print("\n".join(before), flush=True)
    await asyncio.sleep(told.start_s)
    held = hold_cuda(told.cuda_gib)  # until the process ends
    reason = failure(told)
    if reason:
        place = f"(EngineCore pid={os.getpid()}) ERROR 11-30 04:11:00 [v1/engine/core.py:1136]"
        print(f"{place} {reason}", flush=True)
        raise SystemExit(1)
    print("\n".join(after), flush=True)
    runner = web.AppRunner(
        Engine(told).app(),
        access_log=None,
        handle_signals=False,
        shutdown_timeout=0.2,
        handler_cancellation=True,  # as vLLM: a client that goes away frees its blocks
    )
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
    del held


if __name__ == "__main__":
    asyncio.run(serve(read_told(sys.argv[1:])))
