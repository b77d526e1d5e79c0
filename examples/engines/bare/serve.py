"""A bare OpenAI-compatible server, one request at a time: what an engine has to answer, and nothing else.

GET  /health
POST /v1/completions        token ids in, a stream or one object out, log-probabilities by token id
POST /v1/chat/completions   for the accuracy items
"""

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

MODEL = os.environ["LOWBIT_MODEL_DIR"]
NAME = os.environ["LOWBIT_SERVED_NAME"]
LONGEST = int(os.environ["LOWBIT_MAX_MODEL_LEN"])
GPU = bool(os.environ.get("CUDA_VISIBLE_DEVICES"))

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
torch.set_grad_enabled(False)
tokenizer = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16 if GPU else torch.float32)
model = model.to("cuda" if GPU else "cpu").eval()
ends = model.generation_config.eos_token_id
ends = {ends} if isinstance(ends, int) else set(ends or ())
lock = threading.Lock()


def forward(ids, cache=None, last=False):
    """Log-probabilities after each of `ids` (after the last one alone, if so told), and the KV cache."""
    out = model(
        torch.tensor([ids], device=model.device),
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1 if last else 0,
    )
    return torch.log_softmax(out.logits[0].float(), -1), out.past_key_values


def top(row, count, own):
    """The `count` likeliest ids with their log-probabilities, and `own` among them."""
    values, ids = row.topk(max(count, 1))
    listed = dict(zip(ids.tolist(), values.tolist(), strict=True))
    return listed | {own: row[own].item()}


def generate(prompt, body):
    """Greedy tokens, each with its row of log-probabilities, until the length or an end that counts."""
    least = body.get("max_tokens", 16) if body.get("ignore_eos") else body.get("min_tokens", 0)
    rows, cache = forward(prompt, last=True)
    for made in range(1, body.get("max_tokens", 16) + 1):
        token = int(rows[-1].argmax())
        yield token, rows[-1]
        if token in ends and made > least:
            return
        if made < body.get("max_tokens", 16):
            rows, cache = forward([token], cache)


def usage(prompt, made):
    return {"prompt_tokens": len(prompt), "completion_tokens": made, "total_tokens": len(prompt) + made}


def prompt_logprobs(prompt, count):
    """vLLM's `prompt_logprobs`: one row a token, null first. Not required: without it perplexity is left out."""
    rows, _ = forward(prompt)
    listed = [top(rows[place - 1], count, prompt[place]) for place in range(1, len(prompt))]
    return [None, *({str(key): {"logprob": value} for key, value in row.items()} for row in listed)]


def logprobs(made, count):
    """OpenAI's `logprobs`, with `token_id:17` in the place of text: two tokens may have the same text."""
    rows = [(f"token_id:{token}", top(row, count, token), token) for token, row in made]
    return {
        "tokens": [name for name, _, _ in rows],
        "token_logprobs": [listed[token] for _, listed, token in rows],
        "top_logprobs": [
            {f"token_id:{key}": value for key, value in listed.items()} for _, listed, _ in rows
        ],
    }


class Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Prompts are hidden: nothing about requests is printed."""

    def do_GET(self):
        self.answer(200 if self.path == "/health" else 404, {})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        chat = self.path == "/v1/chat/completions"
        if not chat and self.path != "/v1/completions":
            return self.answer(404, {"error": {"type": "NotFoundError"}})
        if chat:
            text = tokenizer.apply_chat_template(body["messages"], add_generation_prompt=True, tokenize=False)
            prompt = tokenizer.encode(text, add_special_tokens=False)
        else:
            prompt = body["prompt"]
            prompt = tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        if len(prompt) + body.get("max_tokens", 16) > LONGEST or body.get("echo"):
            return self.answer(400, {"error": {"type": "BadRequestError"}})
        with lock:
            return self.stream(prompt, body) if body.get("stream") else self.whole(prompt, body, chat)

    def whole(self, prompt, body, chat):
        made = list(generate(prompt, body))
        ids = [token for token, _ in made]
        text = tokenizer.decode(ids, skip_special_tokens=True)
        choice = {"index": 0, "finish_reason": "stop" if ids[-1] in ends else "length", "token_ids": ids}
        if chat:
            choice["message"] = {"role": "assistant", "content": text}
        else:
            choice["text"] = text
            if body.get("logprobs") is not None:
                choice["logprobs"] = logprobs(made, body["logprobs"])
            if body.get("prompt_logprobs") is not None:
                choice["prompt_logprobs"] = prompt_logprobs(prompt, body["prompt_logprobs"])
        return self.answer(200, {"model": NAME, "choices": [choice], "usage": usage(prompt, len(made))})

    def stream(self, prompt, body):
        """One event a token, sent as it is made; the last one holds the counts."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        made = 0
        for token, _ in generate(prompt, body):
            made += 1
            self.event({"choices": [{"index": 0, "text": tokenizer.decode([token]), "token_ids": [token]}]})
        self.event({"choices": [], "usage": usage(prompt, made)})
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def event(self, value):
        self.wfile.write(b"data: " + json.dumps({"model": NAME, **value}).encode() + b"\n\n")

    def answer(self, status, value):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


Server(("127.0.0.1", int(os.environ["LOWBIT_PORT"])), Handler).serve_forever()
