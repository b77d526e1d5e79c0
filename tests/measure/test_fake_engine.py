"""The fake engine itself: what it says of memory is what it holds, and it starts and dies as vLLM does."""

import asyncio
import hashlib
import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from fakes.bigram import Bigram
from fakes.checkpoints import write_anchor, write_candidate
from served import ENGINE, Served, Start

from lowbit_ray.engines.accounts import read_startup


def run(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ENGINE), "--model", str(folder), "--port", "0", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)


def ask(served: Served, path: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        served.endpoint.route(path), json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        value: dict[str, Any] = json.load(answer)
        return value


def test_a_model_told_to_die_at_load_exits_with_an_error(tmp_path: Path) -> None:
    done = run(write_anchor(tmp_path / "m", faults={"dead_at_load": True}))
    assert done.returncode == 1
    assert "Engine core initialization failed" in done.stdout


def test_a_pool_too_small_for_one_long_request_is_refused_in_vllms_words(tmp_path: Path) -> None:
    done = run(write_anchor(tmp_path / "m"), "--kv-cache-memory-bytes", "1000000", "--max-model-len=4096")
    assert done.returncode == 1
    assert "estimated maximum model length is 0" in done.stdout


def test_weights_follow_the_folders_bytes(tmp_path: Path, start_engine: Start) -> None:
    sizes = {}
    for precision in ("bf16", "int8"):
        folder = write_candidate(tmp_path / precision, precision=precision)  # type: ignore[arg-type]
        start_engine(folder)
        log = (folder / "engine.log").read_text()
        sizes[precision] = float(log.split("Model loading took ")[1].split()[0])
    assert sizes["bf16"] > 1.5 * sizes["int8"]


def test_a_lower_utilization_leaves_a_smaller_pool(tmp_path: Path, start_engine: Start) -> None:
    pools = []
    for utilization in ("0.9", "0.7"):
        folder = write_anchor(tmp_path / utilization)
        start_engine(folder, "--gpu-memory-utilization", utilization)
        log = (folder / "engine.log").read_text()
        pools.append(float(log.split("Available KV cache memory: ")[1].split()[0]))
    assert pools[0] - pools[1] == pytest.approx(0.2 * 24, abs=0.02)


@pytest.mark.parametrize("log", ["0.25.1", "cpu"])
def test_its_start_up_lines_are_read_as_vllms(tmp_path: Path, start_engine: Start, log: str) -> None:
    folder = write_anchor(tmp_path / "m", log=log, size_scale=100)
    served = start_engine(folder)
    with urllib.request.urlopen(served.endpoint.route("/metrics"), timeout=5) as page:
        metrics = page.read().decode()
    startup = read_startup(
        (folder / "engine.log").read_text(), metrics, stored_gib=0.5 if log == "cpu" else None
    )
    assert startup.weights_gib > 0
    assert startup.kv_cache_gib > 0
    assert startup.kv_cache_tokens == int(metrics.split('kv_cache_size_tokens="')[1].split('"')[0])


def test_a_told_answer_is_given_and_other_questions_get_the_models_own_words(
    tmp_path: Path, start_engine: Start
) -> None:
    folder = write_anchor(tmp_path / "m", answers="answers.json")
    (folder / "answers.json").write_text(json.dumps({hashlib.sha256(b"what is 6 * 7?").hexdigest(): "42"}))
    served = start_engine(folder)

    def say(question: str) -> str:
        body = {"model": "m", "messages": [{"role": "user", "content": question}], "max_tokens": 20}
        content = ask(served, "/v1/chat/completions", body)["choices"][0]["message"]["content"]
        return str(content)

    assert say("what is 6 * 7?") == "42"
    assert len(say("what is 6 * 8?")) == 20


def test_what_is_greedy_is_the_likeliest(anchor: Served) -> None:
    answer = ask(anchor, "/v1/completions", {"prompt": [65], "max_tokens": 9, "return_token_ids": True})
    assert answer["choices"][0]["token_ids"] == anchor.bigram.greedy(65, 9)


def test_a_perturbed_table_differs_by_its_closed_form() -> None:
    base, other = Bigram(), Bigram(noise=0.2)
    values = base.kl_to(other)
    assert (values > 0).all()
    assert base.kl_to(base) == pytest.approx(0)
    assert other.kl_to(Bigram(noise=0.4)).mean() == pytest.approx(values.mean(), rel=0.5)


def test_sampling_follows_the_seed(anchor: Served) -> None:
    body = {"prompt": [65], "max_tokens": 12, "temperature": 1.0, "return_token_ids": True}
    first, again, other = (
        ask(anchor, "/v1/completions", {**body, "seed": seed})["choices"][0]["token_ids"]
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_it_ends_on_sigterm_at_once_even_with_a_request_running(tmp_path: Path, start_engine: Start) -> None:
    served = start_engine(write_anchor(tmp_path / "m", tokens_per_s=1))

    async def interrupted() -> float:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", int(served.endpoint.url.rsplit(":", 1)[1])
        )
        body = json.dumps({"prompt": [65], "max_tokens": 50, "stream": True})
        head = "POST /v1/completions HTTP/1.1", "Host: x", "Content-Type: application/json"
        writer.write("\r\n".join([*head, f"Content-Length: {len(body)}", "", body]).encode())
        await reader.readline()
        start = time.monotonic()
        served.process.terminate()
        await asyncio.to_thread(served.process.wait, 10)
        writer.close()
        return time.monotonic() - start

    assert asyncio.run(interrupted()) < 5
