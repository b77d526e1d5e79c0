#!/usr/bin/env bash
# vLLM with flags of your own. `python` is the cluster's vLLM environment; a release of your own would lie in this
# folder (pip install --target site-packages …) and come first in PYTHONPATH.
set -euo pipefail
[ "$1" = serve ]

flags=(
  --model "$LOWBIT_MODEL_DIR" --served-model-name "$LOWBIT_SERVED_NAME"
  --host 127.0.0.1 --port "$LOWBIT_PORT"
  --max-model-len "$LOWBIT_MAX_MODEL_LEN"
  --max-logprobs 100           # the KL probe asks for the 100 likeliest
  --no-enable-prefix-caching   # prompts are all different, and scored ones must not be remembered
  --generation-config vllm     # sampling defaults from the request, never from the checkpoint
)
if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
  flags+=(--gpu-memory-utilization "$LOWBIT_GPU_MEMORY_UTILIZATION")
  flags+=(--kv-cache-dtype fp8)                       # what you came to change
  export VLLM_LOGGING_LEVEL=DEBUG                     # 0.25.1 prints its memory accounts at this level
  export VLLM_USE_FLASHINFER_SAMPLER=0                # flashinfer is not installed
else
  flags+=(--dtype float32 --enforce-eager --max-num-seqs 16)
  flags+=(--kv-cache-memory-bytes 536870912 --distributed-executor-backend uni)
  export VLLM_CPU_OMP_THREADS_BIND=nobind VLLM_ENABLE_V1_MULTIPROCESSING=0
fi
exec python -m vllm.entrypoints.openai.api_server "${flags[@]}"
