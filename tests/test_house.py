"""The house rules that a machine can see: the way imports run, README's tree, no path of anybody's machine."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "lowbit_ray"

ORDER = (
    "errors",
    "rules",
    "conduct",
    "tasks",
    "settings",
    "stats",
    "submission",
    "ledger",
    "patience",
    "bucket",
    "lease",
    "journal",
    "people",
    "metrics",
    "checkpoint",
    "score",
    "engines",
    "measure",
    "migration",
    "records",
    "recheck",
    "board",
    "standing",
    "progress",
    "index",
    "rescore",
    "archive",
    "fsck",
    "stages",
    "report",
    "session",
    "evaluate",
    "noise_floor",
    "reference",
    "dispatch",
    "doctor",
    "rehearsal",
    "demo",
    "service",
    "cli",
)
"""The flow: a module imports only from those before it. engines.actor, placement and pod stand with the stages."""
RAY = {
    "dispatch/jobs.py",
    "doctor/cluster.py",
    "engines/actor.py",
    "engines/placement.py",
    "engines/pod.py",
    "metrics.py",
    "service/deploy.py",
    "session.py",
}
"""The only modules that import Ray."""
BASE = (
    "checkpoint",
    "cli",
    "conduct.py",
    "errors.py",
    "rules.py",
    "tasks.py",
    "settings.py",
    "submission.py",
)
HEAVY = {"torch", "vllm", "ray", "aiohttp", "psutil", "datasets", "pynvml", "transformers"}
"""What the base install does not have."""


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imports(path: Path, *, top_only: bool = False) -> set[str]:
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_only else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def place(module: str) -> int | None:
    if module.startswith(
        ("lowbit_ray.engines.actor", "lowbit_ray.engines.placement", "lowbit_ray.engines.pod")
    ):
        return ORDER.index("stages")
    parts = module.split(".")
    return (
        ORDER.index(parts[1]) if len(parts) > 1 and parts[0] == "lowbit_ray" and parts[1] in ORDER else None
    )


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_one_way(path: Path) -> None:
    own = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    here = place(own)
    if here is None:
        return
    for module in imports(path, top_only=True):
        there = place(module)
        assert there is None or there <= here, f"{own} imports {module}, which comes later in the flow"


def test_every_module_has_its_place_in_the_flow() -> None:
    names = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in modules()} - {"__init__"}
    assert names == set(ORDER)


def test_ray_is_imported_at_the_edge_alone() -> None:
    users = {
        str(path.relative_to(PACKAGE))
        for path in modules()
        if any(module.split(".")[0] == "ray" for module in imports(path))
    }
    assert users == RAY


def test_the_base_install_needs_nothing_heavy() -> None:
    for path in modules():
        relative = str(path.relative_to(PACKAGE))
        if relative.startswith(BASE):
            heavy = {module.split(".")[0] for module in imports(path, top_only=True)} & HEAVY
            assert not heavy, f"{relative} imports {heavy}"


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    return [ROOT / name for name in listed if (ROOT / name).is_file()]


def test_nothing_names_a_path_of_somebodys_machine() -> None:
    private = re.compile(r"/(?:work|farm)/|/root/\.|/home/\w+/")
    for path in tracked():
        if path.stat().st_size < 400_000 and path != Path(__file__):
            text = path.read_text(errors="replace")
            assert not private.search(text), path


def test_the_readme_tree_names_every_module_and_nothing_else() -> None:
    block = re.search(r"```text\n(lowbit_ray/.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None, "README has no tree"
    shown = set(re.findall(r"^\s+([a-z_]+(?:\.py|/))\s", block.group(1), re.MULTILINE))
    here = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py"}
    here |= {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")} | {"rules/", "tasks/"}
    assert shown == here


def test_modules_and_functions_stay_small() -> None:
    for path in modules():
        text = path.read_text()
        assert text.count("\n") <= 300, f"{path} is long: is there a seam?"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                assert lines <= 50, f"{path}: {node.name} has {lines} lines"
