"""The one line that says why an engine died."""

from __future__ import annotations

from pathlib import Path

import pytest

from lowbit_ray.engines.diagnosis import exit_meaning, root_cause


@pytest.mark.parametrize("name", ["failed-start", "engine-died-in-request"])
def test_a_missing_module_is_the_cause_not_the_summary_after_it(fixtures: Path, name: str) -> None:
    log = (fixtures / f"vllm-0.25.1-h200-{name}.log").read_text()
    assert root_cause(log) == "ModuleNotFoundError: No module named 'flashinfer'"


def test_out_of_memory_is_the_cause_and_is_cut_to_length(fixtures: Path) -> None:
    cause = root_cause((fixtures / "vllm-0.25.1-h200-oom-in-graph-capture.log").read_text())
    assert cause.startswith("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 128.00 MiB.")
    assert len(cause) == 400


def test_traceback_spam_after_the_cause_does_not_hide_it() -> None:
    log = (
        "(EngineCore pid=2) ERROR 11-30 04:04:06 [core.py:1] Traceback (most recent call last):\n"
        '(EngineCore pid=2) ERROR 11-30 04:04:06 [core.py:1]   File "x.py", line 1\n'
        "(EngineCore pid=2) ERROR 11-30 04:04:06 [core.py:1] KeyError: 'layers.0.weight_scale'\n"
        "(APIServer pid=1) Traceback (most recent call last):\n"
        '(APIServer pid=1)   File "y.py", line 2\n'
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.\n"
        "/usr/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: 1 leaked semaphore\n"
    )
    assert root_cause(log) == "KeyError: 'layers.0.weight_scale'"


def test_of_a_chain_the_first_is_the_cause() -> None:
    log = (
        "Traceback (most recent call last):\nKeyError: 'rope'\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        "Traceback (most recent call last):\nValueError: bad config\n"
    )
    assert root_cause(log) == "KeyError: 'rope'"


def test_a_validation_error_is_given_with_its_reason() -> None:
    log = (
        "Traceback (most recent call last):\n"
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
        "  Value error, Unknown quantization method: int3 [type=value_error, input_value=x]\n"
        "    For further information visit https://errors.pydantic.dev\n"
    )
    assert root_cause(log).endswith("for ModelConfig: Value error, Unknown quantization method: int3")


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (
            "usage: x\napi_server.py: error: unrecognized: --foo\n",
            "api_server.py: error: unrecognized: --foo",
        ),
        ("launch.sh: line 3: sglang: command not found\n", "launch.sh: line 3: sglang: command not found"),
        (
            "loading\nFatal Python error: Segmentation fault\n\nThread 1:\n",
            "Fatal Python error: Segmentation fault",
        ),
        ("error: model is 3-bit\nbye\n", "bye"),
        ("", ""),
    ],
)
def test_without_a_traceback_it_is_the_crash_or_the_last_line(log: str, cause: str) -> None:
    assert root_cause(log) == cause


@pytest.mark.parametrize(
    ("code", "text"), [(0, "exit code 0"), (139, "signal SIGSEGV"), (255, "exit code 255")]
)
def test_an_exit_code_is_put_into_words(code: int, text: str) -> None:
    assert exit_meaning(code) == text
