#!/usr/bin/env bash
# The smallest engine that passes every check: transformers behind Python's own HTTP server.
set -euo pipefail
[ "$1" = serve ]
here=$(cd "$(dirname "$0")" && pwd)
exec python "$here/serve.py"
