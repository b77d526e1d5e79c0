import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lowbit_ray.measure.accuracy.items import CallCheck, UnitTestTarget
from lowbit_ray.measure.accuracy.scorers import unit_tests
from lowbit_ray.measure.accuracy.scorers.unit_tests import SandboxLimits, judge_code, score_unit_tests
from lowbit_ray.measure.accuracy.scorers.verdict import Case, Outcome

ADD = UnitTestTarget(
    checks=(CallCheck(expression="add(2, 3)", expected="5"), CallCheck(expression="add(-1, 1)", expected="0"))
)
QUICK = SandboxLimits(cpu_s=1)


def value_of(code: str, expected: str) -> Outcome:
    target = UnitTestTarget(checks=(CallCheck(expression="f()", expected=expected),))
    return judge_code(target, code, QUICK)


@pytest.mark.parametrize(
    "text",
    [
        "def add(a, b): return a + b",
        "Here it is:\n```python\ndef add(a, b):\n    return a + b\n```\nIt adds.",
        "```\nimport math, heapq\nfrom collections import Counter\nprint('x' * 10**5)\n"
        "def add(a, b): return a + b",
        "<think>def add(a, b): return 1</think>\n```py\nadd = lambda a, b: a + b\n```",
    ],
)
def test_a_right_function_is_right(text: str) -> None:
    assert judge_code(ADD, text) is Outcome.RIGHT


@pytest.mark.parametrize(
    "text",
    [
        "def add(a, b): return a - b",
        "def add(a, b): return 5",
        "def plus(a, b): return a + b",
        "def add(a, b): raise SystemExit",
        "def add(a, b): return add(a, b)",
        "I cannot write code.",
        "class Same:\n    def __eq__(self, other): return True\ndef add(a, b): return Same()",
        "class Same(int):\n    def __eq__(self, other): return True\ndef add(a, b): return Same()",
        "def add(a, b): return [0] * 10**10",
        "x = '\0",
        "(" * 10_000,
    ],
)
def test_a_wrong_function_is_wrong(text: str) -> None:
    assert judge_code(ADD, text) is Outcome.WRONG


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def f(): return 0.1 + 0.2", "0.3"),
        ("def f(): return [(1, 'a'), {2: None}]", "[(1, 'a'), {2: None}]"),
        ("def f(): return {1, 2}", "{2, 1}"),
        ("def f(): return 2", "2.0"),
    ],
)
def test_values_compare_as_literals(code: str, expected: str) -> None:
    assert value_of(code, expected) is Outcome.RIGHT


@pytest.mark.parametrize(
    ("code", "expected"),
    [("def f(): return 1", "True"), ("def f(): return (1,)", "[1]"), ("def f(): pass", "0")],
)
def test_values_of_another_type_are_wrong(code: str, expected: str) -> None:
    assert value_of(code, expected) is Outcome.WRONG


def test_an_integer_beyond_every_float_is_wrong_and_nothing_of_ours_breaks() -> None:
    """A factorial gone wrong, in an honest model's answer."""
    assert value_of("def f(): return 10**400", "120") is Outcome.WRONG
    assert value_of("def f(): return -10**400", "0.5") is Outcome.WRONG
    assert value_of("def f(): return 10**400", f"{10**400}") is Outcome.RIGHT


def test_no_code_is_no_answer() -> None:
    assert judge_code(ADD, "```python\n\n```") is Outcome.NO_ANSWER


def test_an_endless_loop_times_out() -> None:
    started = time.monotonic()
    assert judge_code(ADD, "def add(a, b):\n    while True: pass", QUICK) is Outcome.TIMED_OUT
    assert time.monotonic() - started < 9


def test_a_sleeper_times_out() -> None:
    assert judge_code(ADD, "import time\ntime.sleep(60)", SandboxLimits(wall_s=1.5)) is Outcome.TIMED_OUT


def test_a_segmentation_fault_is_a_crash_of_the_answer_alone() -> None:
    code = "import ctypes\ndef add(a, b): return ctypes.string_at(0)"
    assert judge_code(ADD, code, QUICK) is Outcome.CRASHED


def test_leaving_early_is_a_crash() -> None:
    assert judge_code(ADD, "import os\nos._exit(0)", QUICK) is Outcome.CRASHED


def test_a_huge_value_is_not_sent_back() -> None:
    assert value_of("def f(): return 'x' * 10**6", "'x'") is Outcome.WRONG


def test_the_answer_reaches_no_network() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(0.2)
        port = listener.getsockname()[1]
        code = f"import _socket\ns = _socket.socket()\ns.connect(('127.0.0.1', {port}))\ndef f(): return 1"
        assert value_of(code, "1") is Outcome.WRONG
        with pytest.raises(TimeoutError):
            listener.accept()


@pytest.mark.parametrize(
    "act",
    [
        "open({victim!r}).read()",
        "open({victim!r}, 'w')",
        "import os; os.remove({victim!r})",
        "import os; os.rename({victim!r}, {victim!r} + 'x')",
        "import os; os.chmod({victim!r}, 0)",
        "import os; os.mkdir({victim!r} + 'd')",
        "import os; os.listdir({folder!r})",
        "import os; os.fork()",
        "import posix; posix.system('true') and 1/0; posix.execv('/bin/true', ['true'])",
        "import os; os.kill(os.getppid(), 0)",
        "import os; os.kill({parent}, 0)",
    ],
)
def test_the_answer_touches_no_file_and_no_process(act: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    line = act.format(victim=str(victim), folder=str(tmp_path), parent=os.getpid())
    assert value_of(f"def f():\n    {line}\n    return 1", "1") is not Outcome.RIGHT
    assert victim.read_text() == "precious"
    assert [path.name for path in tmp_path.iterdir()] == ["victim"]


def test_the_expected_values_and_the_environment_do_not_enter_the_sandbox(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOWBIT_SECRET", "canary-environment")
    code = (
        "import gc, os, sys\n"
        "def f():\n"
        "    seen = repr(os.environ) + repr(sys.argv) + repr(sys._getframe(2).f_locals)\n"
        "    seen += repr([o for o in gc.get_objects() if isinstance(o, (dict, list))])\n"
        "    return 'canary-' + 'expected' in seen or 'canary-' + 'environment' in seen"
    )
    target = UnitTestTarget(
        checks=(
            CallCheck(expression="f()", expected="False"),
            CallCheck(expression="len('x')", expected="'canary-expected'"),
        )
    )
    run = unit_tests.evaluate_in_sandbox(code, [check.expression for check in target.checks], QUICK)
    assert run.output.splitlines()[0] == b'{"value": "False"}'


def test_a_killed_scorer_leaves_no_answer_running() -> None:
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from lowbit_ray.measure.accuracy.scorers.unit_tests import *\n"
            "print('start', flush=True)\n"
            "evaluate_in_sandbox('marker_of_this_test = 1\\nimport time\\ntime.sleep(60)', ['1'])",
        ],
        stdout=subprocess.PIPE,
    )
    assert parent.stdout is not None
    parent.stdout.readline()
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    deadline = time.monotonic() + 10
    while not (found := children.read_text().split()) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.5)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    child = int(found[0])
    while time.monotonic() < deadline and _runs(child):
        time.sleep(0.02)
    assert not _runs(child)


def test_many_answers_are_judged_in_order() -> None:
    good, bad = "def add(a, b): return a + b", "def add(a, b): return 7"
    cases = [Case(ADD, text) for text in (good, bad, good, bad, bad, good)]
    assert [outcome is Outcome.RIGHT for outcome in score_unit_tests(cases)] == [
        True,
        False,
        True,
        False,
        False,
        True,
    ]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=200))
def test_any_text_is_judged(text: str) -> None:
    assert judge_code(ADD, text, QUICK) in Outcome


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
