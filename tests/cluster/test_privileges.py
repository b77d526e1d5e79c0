"""Whether the privileges that the files of cluster/ ask for suffice for the sandbox: tried, in a container's place.

A process with the capabilities that container runtimes leave root, plus those that a file adds, and with a /proc that
is masked as they mask it, makes the sandbox of participants' engines, and sees what such an engine keeps in its own
file systems in memory. Without any one of these capabilities it could not.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from cluster.manifests import read

CLUSTER = Path(__file__).parents[2] / "cluster"
LEFT_TO_ROOT = (
    *(
        "audit_write",
        "chown",
        "dac_override",
        "fowner",
        "fsetid",
        "kill",
        "mknod",
        "net_bind_service",
        "net_raw",
    ),
    *("setfcap", "setgid", "setpcap", "setuid", "sys_chroot"),
)
MASKED = "mount --make-rprivate / && mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys"
ASKED = """
import json, subprocess, sys
from pathlib import Path
from lowbit_ray.engines.sandbox import sandbox_support
other = subprocess.Popen(["setpriv", "--reuid=40001", "--regid=40001", "--clear-groups", "sleep", "60"])
try:
    while Path(f"/proc/{other.pid}/comm").read_text() != "sleep\\n":
        pass
    Path(f"/proc/{other.pid}/smaps_rollup").read_text()
    Path(f"/proc/{other.pid}/root/tmp").stat()
    sees = True
except PermissionError:
    sees = False
finally:
    other.kill()
print(json.dumps([sandbox_support().user, sees]))
"""

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("bwrap", "setpriv", "unshare"))),
    reason="needs root, bubblewrap, setpriv and unshare",
)


def tried(added: set[str]) -> tuple[str, bool]:
    """The sandbox's kind of user (`own`, `mapped`, none), and whether the memory of another user's process is seen."""
    kept = ",".join(f"+{name}" for name in sorted({*LEFT_TO_ROOT, *added}))
    held = ["setpriv", f"--bounding-set=-all,{kept}", "--inh-caps=-all", sys.executable, "-c", ASKED]
    command = ["unshare", "--mount", "sh", "-c", f'{MASKED} && exec "$@"', "sh", *held]
    answer = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, cwd=CLUSTER.parent
    )
    if answer.returncode:
        pytest.skip(f"no container can be imitated here: {answer.stderr.strip()[-200:]}")
    user, sees = json.loads(answer.stdout)
    return user, sees


def added_by(file: str) -> set[str]:
    """Capabilities that a file gives to nodes with GPUs."""
    if file == "kuberay/raycluster":
        (container,) = read("raycluster")["spec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"]
        return {name.lower() for name in container["securityContext"]["capabilities"]["add"]}
    options = yaml.safe_load((CLUSTER / f"{file}.yaml").read_text())["docker"]["worker_run_options"]
    return {name.lower() for name in re.findall(r"--cap-add=(\w+)", " ".join(options))}


@pytest.mark.parametrize("file", ["kuberay/raycluster", "aws", "gcp"])
def test_a_gpu_node_can_make_the_sandbox_and_sees_what_is_held_in_it(file: str) -> None:
    assert tried(added_by(file)) == ("own", True)


def test_no_capability_is_asked_for_that_is_not_needed() -> None:
    added = added_by("kuberay/raycluster")
    assert added
    for name in added:
        assert tried(added - {name}) != ("own", True), name
