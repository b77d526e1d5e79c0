"""A Ray of this machine alone is nobody else's."""

import os
import subprocess
import sys

SESSION = """
import os, subprocess, sys, ray
from lowbit_ray.session import ray_session
with ray_session(1, local=True):
    assert ray.get(ray.remote(lambda: 41 + 1).remote()) == 42
    address = ray.get_runtime_context().gcs_address
    told = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")} | {"RAY_AUTH_MODE": "disabled"}
    join = f"import ray; ray.init(address={address!r}); print('joined')"
    stranger = subprocess.run([sys.executable, "-c", join], env=told, capture_output=True, text=True, timeout=120)
    print(stranger.returncode, stranger.stdout)
"""


def test_a_local_ray_works_for_its_process_and_is_closed_to_who_has_no_token() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", SESSION], env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    code, *said = done.stdout.split()
    assert code != "0"
    assert "joined" not in said
