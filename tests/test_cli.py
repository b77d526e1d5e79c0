"""The commands as a user types them: exit codes, one-line errors, help with an example, JSON for programs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.checkpoints import write_anchor, write_candidate
from typer.testing import CliRunner

from lowbit_ray.cli import app
from lowbit_ray.ledger import FolderLedger
from lowbit_ray.submission import Address, Submission, now

ROOT = Path(__file__).parents[1]


def lowbit(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from lowbit_ray.cli import main; main()", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "120", "NO_COLOR": "1", **environment},
    )


def commands() -> list[list[str]]:
    """Every command with its group, as Typer knows them."""
    groups = [(group.name, group.typer_instance) for group in app.registered_groups]
    found = []
    for group, members in [(None, app), *groups]:
        for command in members.registered_commands:
            name = command.name or command.callback.__name__.rstrip("_")
            found.append([name] if group is None else [group, name])
    return found


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_has_help_with_an_example(command: list[str]) -> None:
    done = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "160", "NO_COLOR": "1"})
    assert done.exit_code == 0
    assert f"lowbit {' '.join(command)}" in done.stdout.partition("Example: ")[2]
    assert "--json" in done.stdout


@pytest.mark.parametrize(
    ("typed", "completed"),
    [("lowbit wh", ["whoami"]), ("lowbit board smol", ["smollm2-135m"])],
)
def test_the_shell_completes_commands_and_tasks(typed: str, completed: list[str]) -> None:
    environment = {
        "_LOWBIT_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(typed.count(" ")),
    }
    program = "import sys; sys.argv[0] = 'lowbit'; from lowbit_ray.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.stdout.split() == completed


PARTICIPANTS = (
    "import sys\nsys.modules.update(dict.fromkeys({blocked!r}))\nfrom lowbit_ray.cli import main; main()"
)
"""Importing a module that stands there as None fails."""


def test_participants_commands_need_nothing_heavy(tmp_path: Path) -> None:
    heavy = [
        "torch",
        "vllm",
        "ray",
        "aiohttp",
        "psutil",
        "datasets",
        "pynvml",
        "transformers",
        "fastapi",
        "uvicorn",
    ]
    program = PARTICIPANTS.format(blocked=heavy)
    for command in (
        ["submit", "owner/name@" + "0" * 40, "--task", "t", "--method", "m"],
        ["watch", "0" * 16],
        ["show", "0" * 16],
        ["list"],
        ["cancel", "0" * 16],
        ["flag", "0" * 16, "--lift"],
        ["audit"],
        ["board", "t"],
        ["whoami"],
    ):
        done = subprocess.run(
            [sys.executable, "-c", program, *command],
            capture_output=True,
            text=True,
            env={**os.environ, "LOWBIT_URL": "no-url", "LOWBIT_TOKEN_FILE": str(tmp_path / "none")},
        )
        assert done.returncode == 2, done.stderr
        assert "not the address of a service" in done.stderr, done.stderr


def test_a_record_that_agrees_is_exit_code_0(fixtures: Path) -> None:
    done = lowbit("score", fixtures / "record-a553eefea2d24359.json")
    assert done.returncode == 0, done.stderr
    assert "22 of 23 derived numbers agree" in done.stdout


def test_a_record_that_differs_is_exit_code_1_and_says_where(fixtures: Path, tmp_path: Path) -> None:
    record = json.loads((fixtures / "record-a553eefea2d24359.json").read_text())
    record["result"]["score"] = 1.7
    (tmp_path / "record.json").write_text(json.dumps(record))
    done = lowbit("score", tmp_path / "record.json", "--json")
    assert done.returncode == 1
    differing = [check for check in json.loads(done.stdout) if check["status"] == "differs"]
    assert [check["field"] for check in differing] == ["result.score"]


@pytest.mark.parametrize("content", [None, "{", "[]", "{}"], ids=["missing", "no JSON", "no object", "empty"])
def test_what_is_no_record_is_exit_code_2_and_one_line(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "record.json"
    if content is not None:
        path.write_text(content)
    done = lowbit("score", path)
    assert done.returncode == 2
    assert done.stderr.startswith("ConfigError")
    assert "Traceback" not in done.stderr


def test_a_kept_contract_is_exit_code_0(tmp_path: Path) -> None:
    source, candidate = (
        write_anchor(tmp_path / "source"),
        write_candidate(tmp_path / "candidate", precision="int8"),
    )
    done = lowbit("check", source, candidate, "--task", "smollm2-135m", "--declared", "W8A8KV16", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["kept"]
    assert report["agrees"]


def test_a_broken_contract_is_exit_code_1_with_file_and_field(tmp_path: Path) -> None:
    source, candidate = (
        write_anchor(tmp_path / "source"),
        write_candidate(tmp_path / "candidate", precision="int8"),
    )
    config = json.loads((candidate / "config.json").read_text())
    (candidate / "config.json").write_text(json.dumps(config | {"hidden_size": 128}))
    done = lowbit("check", source, candidate, "--task", "smollm2-135m")
    assert done.returncode == 1
    assert "hidden_size" in done.stdout


def test_a_folder_that_cannot_be_read_is_exit_code_2(tmp_path: Path) -> None:
    done = lowbit("check", write_anchor(tmp_path / "source"), tmp_path / "nowhere")
    assert done.returncode == 2
    assert "nowhere" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_submission_is_named(tmp_path: Path) -> None:
    done = lowbit("evaluate", "0123456789abcdef", LOWBIT_LEDGER=str(tmp_path))
    assert done.returncode == 2
    assert "0123456789abcdef" in done.stderr


def test_a_wrong_option_is_exit_code_2() -> None:
    assert lowbit("score", "--frobnicate").returncode == 2
    assert lowbit("demo", "--candidate", "w2a2").returncode == 2


def test_watching_follows_the_ledger_to_the_verdict(tmp_path: Path) -> None:
    ledger = FolderLedger(tmp_path)
    submission = Submission(
        id="0" * 16,
        participant="somebody",
        task_id="fake",
        checkpoint=Address(kind="folder", location="./x"),
        method="none",
        created_at=now(),
    )
    ledger.create(f"submissions/{submission.id}/submission.json", submission.model_dump_json().encode())
    ledger.create(f"submissions/{submission.id}/cancelled.json", b'{"by":"me","at":"2026-01-01T00:00:00Z"}')
    done = lowbit("watch", submission.id, "--json", LOWBIT_LEDGER=str(tmp_path))
    assert done.returncode == 1, done.stderr
    assert [json.loads(line)["state"]["status"] for line in done.stdout.splitlines()] == ["cancelled"]
    shown = lowbit("watch", submission.id, LOWBIT_LEDGER=str(tmp_path))
    assert "cancelled" in shown.stdout
    assert lowbit("watch", "f" * 16, LOWBIT_LEDGER=str(tmp_path)).returncode == 2


def test_the_doctor_exits_with_1_where_something_is_bad(tmp_path: Path) -> None:
    found = lowbit(
        "doctor",
        "--json",
        LOWBIT_LEDGER=str(tmp_path / "ledger"),
        LOWBIT_CACHE=str(tmp_path / "cache"),
        LOWBIT_VLLM_COMMAND="no-such-program",
        RAY_ADDRESS="",
    )
    assert found.returncode == 1, found.stderr
    levels = {finding["what"]: finding["level"] for finding in json.loads(found.stdout)}
    assert (levels["ledger"], levels["vLLM"]) == ("good", "bad")
