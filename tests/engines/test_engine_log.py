"""Lines of an engine's log."""

from __future__ import annotations

from pathlib import Path

import pytest

from lowbit_ray.engines.log import LogLine, read_lines, tail


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (
            "(EngineCore pid=894) ERROR 11-30 04:04:06 [v1/engine/core.py:1231]     self._init()",
            LogLine("EngineCore", "ERROR", "    self._init()"),
        ),
        (
            "(Worker_TP0 pid=3) (EngineCore pid=2) INFO 11-30 04:04:06 [x.py:1] hello",
            LogLine("EngineCore", "INFO", "hello"),
        ),
        ("(EngineCore pid=894)     self._init()", LogLine("EngineCore", "", "    self._init()")),
        ("\x1b[32mINFO\x1b[0m 11-30 04:04:06 [x.py:1] hello", LogLine("", "INFO", "hello")),
        ("llama_server: listening", LogLine("", "", "llama_server: listening")),
        ("(not a prefix) hello", LogLine("", "", "(not a prefix) hello")),
        ("", LogLine("", "", "")),
    ],
)
def test_prefixes_are_taken_apart(raw: str, line: LogLine) -> None:
    assert list(read_lines(raw + "\n")) == [line]


def test_every_line_of_a_real_log_is_read(fixtures: Path) -> None:
    text = (fixtures / "vllm-0.32.0-cpu-smollm2-bf16.log").read_text()
    lines = list(read_lines(text))
    assert len(lines) == len(text.splitlines())
    assert {"APIServer", "EngineCore"} <= {line.process for line in lines}


def test_the_tail_of_a_log_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert tail(tmp_path / "none.log", 5) == ""


def test_bytes_that_are_no_text_do_not_stop_the_reader(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"one\n\xff\xfe\x00two\n")
    assert tail(path, 1).endswith("two")
