"""Foreign CPU use is seen, the engine's own is not taken for it."""

import subprocess
import sys
import time

import psutil

from lowbit_ray.engines.neighbours import NeighbourWatch

SPIN = "import time\nend = time.monotonic() + 3\nwhile time.monotonic() < end: pass"


def share_while_spinning(*, ours: bool) -> float:
    with subprocess.Popen([sys.executable, "-c", SPIN]) as process:
        with NeighbourWatch(lambda: [psutil.Process(process.pid)] if ours else []) as watch:
            time.sleep(1.0)
        process.kill()
    return watch.share


def test_a_neighbour_that_computes_is_seen() -> None:
    # one whole core, less what a busy machine keeps from it
    assert share_while_spinning(ours=False) > 0.3 / (psutil.cpu_count() or 1)


def test_what_the_engine_uses_itself_is_not_a_neighbours() -> None:
    assert share_while_spinning(ours=False) >= 0
    with subprocess.Popen([sys.executable, "-c", SPIN]) as process:
        with NeighbourWatch(list) as foreign, NeighbourWatch(lambda: [psutil.Process(process.pid)]) as own:
            time.sleep(1.0)
        process.kill()
    assert own.share < foreign.share


def test_a_share_is_between_nothing_and_everything() -> None:
    with NeighbourWatch(list) as watch:
        pass
    assert 0 <= watch.share <= 1
