"""The GPU proof's scripts, as far as no GPU is needed: checkpoints of a small shape, plan, what is kept, table."""

import gzip
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from benchmarks.gpu.keep import Kept, keep, pack
from benchmarks.gpu.plan import ENTRIES, choose, next_entry
from benchmarks.gpu.site import gpu_site
from benchmarks.gpu.table import table
from benchmarks.gpu.watch import busy_seconds
from lowbit_ray.checkpoint.contract import check_contract
from lowbit_ray.ledger import FolderLedger
from lowbit_ray.rules import load_rules
from lowbit_ray.tasks import load_task

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("made")
    # a process of its own: its warnings are not this package's
    command = [
        sys.executable,
        "-m",
        "benchmarks.gpu.checkpoints",
        str(folder),
        "--shape",
        "tiny",
        "--device",
        "cpu",
    ]
    subprocess.run(command, check=True, cwd=ROOT, timeout=200)
    return folder


@pytest.mark.parametrize(
    ("suffix", "label"), [("", "W16A16KV16"), ("-fp8", "W8A8KV8"), ("-w4a16", "W4A16KV16")]
)
def test_a_made_candidate_keeps_the_contract(made: Path, suffix: str, label: str) -> None:
    verdict = check_contract(made / "tiny", made / f"tiny{suffix}", load_rules())
    assert verdict.kept
    assert verdict.findings == ()
    assert verdict.precision is not None
    assert verdict.precision.label == label


def test_an_answer_over_chat_ends_after_the_same_number_of_tokens(made: Path) -> None:
    from tokenizers import Tokenizer

    from benchmarks.gpu.words import END, successors

    following = successors(made / "tiny", 1024, 12, 7)
    tokenizer = Tokenizer.from_file(str(made / "tiny" / "tokenizer.json"))
    token = tokenizer.encode("<|im_start|>assistant\n").ids[-1]
    said = [token := following[token] for _ in range(12)]
    assert said[-1] == tokenizer.token_to_id(END)
    word = tokenizer.decode(said[:-1])
    assert " " not in word
    assert tokenizer.encode(word).ids == said[:-1]  # or a checked count of tokens would not be believed
    assert sorted(following) == sorted(following.values())


@pytest.mark.parametrize("task", ["qwen3-8b-shape", "qwen3-8b-speed", "qwen3-8b-tp2", "smollm2-gpu"])
def test_the_tasks_can_be_read_and_pass_on_what_keeps_the_fabric_safe(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    monkeypatch.setenv("TRITON_LIBCUDA_PATH", "/usr/local/nvidia/lib64")
    site = gpu_site(tmp_path, tmp_path / "made", None)
    read = load_task(task, site.tasks)
    assert read.prompts.path == str(tmp_path / "made" / "text")
    assert read.engine.environment["NCCL_NVLS_ENABLE"] == "0"
    assert read.engine.environment["TRITON_LIBCUDA_PATH"] == "/usr/local/nvidia/lib64"


def test_the_next_evaluation_is_the_first_that_ends_in_time() -> None:
    waiting = choose("8b-fp8,smollm2-fp8")
    assert next_entry(waiting, 30) is ENTRIES["8b-fp8"]
    assert next_entry(waiting, 7) is ENTRIES["smollm2-fp8"]
    assert next_entry(waiting, 1) is None


def test_an_unknown_evaluation_is_named() -> None:
    with pytest.raises(ValueError, match="no such evaluation: nothing"):
        choose("8b-fp8,nothing")


def test_what_is_kept_of_an_unfinished_evaluation_hides_outputs(tmp_path: Path) -> None:
    ledger = FolderLedger(tmp_path / "ledger")
    step = {
        "time": {
            "name": "timed-x",
            "started_at": "2026-11-30T08:00:00Z",
            "seconds": 10.0,
            "pod_seconds": 9.0,
            "attempt": 1,
        },
        "value": {
            "start_seconds": 4.0,
            "runs": {"serve": [{"name": "serve", "wall_s": 5.0}]},
            "outputs": {"serve": ["hidden"]},
        },
    }
    ledger.create("submissions/0123456789abcdef/stages/timed-x.json", json.dumps(step).encode())
    logs = tmp_path / "cache" / "submissions" / "0123456789abcdef" / "logs"
    logs.mkdir(parents=True)
    (logs / "timed.log").write_bytes(b"x" * 5 * 2**20)
    out = tmp_path / "out"
    out.mkdir()
    kept = Kept(out, tmp_path / "cache", ledger, out / "gpus.jsonl")
    keep(kept, ENTRIES["8b-fp8"], "0123456789abcdef")
    with tarfile.open(pack(out)) as archive:
        assert "measured-8b-fp8.json" in archive.getnames()
    assert "hidden" not in (out / "measured-8b-fp8.json").read_text()
    assert "not finished" in (out / "stages-8b-fp8.txt").read_text()
    assert len(gzip.decompress((out / "log-8b-fp8-timed.log.gz").read_bytes())) < 5 * 2**20


def test_busy_seconds_are_those_of_one_gpu_within_the_times(tmp_path: Path) -> None:
    path = tmp_path / "gpus.jsonl"
    samples = [
        {"at": at, "gpus": {"a": [50 if at > 12 else 0, 1.0], "b": [100, 1.0]}} for at in range(10, 20)
    ]
    path.write_text("".join(json.dumps(sample) + "\n" for sample in samples) + '{"at": 20, "gp')
    assert busy_seconds(path, "a", 11, 15) == 3.0
    assert busy_seconds(path, "c", 11, 15) is None


def test_the_table_names_speeds_and_says_what_it_compares(tmp_path: Path, fixtures: Path) -> None:
    text = (fixtures / "record-smollm2-w8a8.json").read_text()
    (tmp_path / "h200-8b-fp8.json").write_text(text)
    shown = table(tmp_path)
    speed = json.loads(text)["result"]["speed"]
    assert f"| {speed:.2f} |" in shown
    assert "random weights" in shown
    assert "1.615" in shown
