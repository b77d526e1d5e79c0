"""Starts llama.cpp's HTTP server: python serve.py MODEL.gguf

It takes prompts of token ids, streams, counts in `usage` and gives log-probabilities by token id, so that it needs
no adapter. It knows neither `min_tokens` (`ignore_eos` makes lengths exact) nor `return_token_ids`, and scores no text
that it did not generate: KL is measured by generation, perplexity is left out.
"""

import os
import signal
import sys

import xllamacpp

AT_ONCE = 8
"""Requests in flight; more wait."""


def main() -> None:
    params = xllamacpp.CommonParams()
    params.model.path = sys.argv[1]
    params.port = int(os.environ["LOWBIT_PORT"])
    params.n_parallel = AT_ONCE
    params.kv_unified = True  # one pool for all requests, instead of an equal share for each
    params.n_ctx = 4 * int(os.environ["LOWBIT_MAX_MODEL_LEN"])
    params.cache_prompt = False  # no prompt comes twice
    params.cache_ram_mib = 0
    params.endpoint_metrics = True  # how many requests run at once
    params.cpuparams.n_threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    if os.environ.get("CUDA_VISIBLE_DEVICES"):
        params.n_gpu_layers = 999
    server = xllamacpp.Server(params)
    print(f"listening on {server.listening_address}", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
