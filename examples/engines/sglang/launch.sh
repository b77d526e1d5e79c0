#!/usr/bin/env bash
# SGLang. It is not part of the cluster's environment: install it into this folder before you submit it,
#     pip install --target site-packages "sglang[all]"
# for the Python that `lowbit engine test` names. SGLang knows no `min_tokens`; `ignore_eos` makes lengths exact.
set -euo pipefail
[ "$1" = serve ]
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$here/site-packages"

exec python -m sglang.launch_server \
  --model-path "$LOWBIT_MODEL_DIR" --served-model-name "$LOWBIT_SERVED_NAME" \
  --host 127.0.0.1 --port "$LOWBIT_PORT" \
  --context-length "$LOWBIT_MAX_MODEL_LEN" \
  --mem-fraction-static "$LOWBIT_GPU_MEMORY_UTILIZATION" \
  --disable-radix-cache
