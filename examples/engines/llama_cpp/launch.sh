#!/usr/bin/env bash
# llama.cpp's own server on a GGUF file of this folder. make.sh fills the folder.
set -euo pipefail
[ "$1" = serve ]
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$here/site-packages"
exec python "$here/serve.py" "$here/model.gguf"
