"""README's tables of measured figures are those that the kept results give."""

import json
from pathlib import Path

from benchmarks.gpu.table import table

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_h200_table_is_what_the_records_give() -> None:
    rows = [line for line in table(ROOT / "benchmarks" / "results").splitlines() if line.startswith("|")]
    assert "\n".join(rows) in README


def test_the_load_clients_figures_are_the_kept_ones() -> None:
    kept = json.loads((ROOT / "benchmarks" / "results" / "load-client.json").read_text())
    for client in kept["null_server"]["clients"].values():
        assert f"| {client['ceiling_tokens_per_s']:,} | {client['cpu_us_per_token']} |" in README
