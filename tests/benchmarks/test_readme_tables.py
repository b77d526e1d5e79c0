"""README's tables of measured figures are those that the kept results give."""

import json
from pathlib import Path
from statistics import median

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


def test_the_clients_side_by_side_are_the_kept_ones() -> None:
    kept = json.loads((ROOT / "benchmarks" / "results" / "load-client.json").read_text())
    for client in kept["server"]["clients"].values():
        speed, tpot = median(client["output_throughput"]), median(client["median_tpot_ms"])
        ratios = f"{client['throughput_ratio']:.3f} | {client['tpot_ratio']:.3f}"
        assert f"| {speed:.1f} | {tpot:.1f} | {ratios} |" in README


def test_ours_reads_what_vllms_own_client_reads_on_the_same_server() -> None:
    kept = json.loads((ROOT / "benchmarks" / "results" / "load-client.json").read_text())
    for place in ("server", "h200"):
        ours = kept[place]["clients"]["lowbit_ray"]
        assert abs(ours["throughput_ratio"] - 1) < 0.02
        assert abs(ours["tpot_ratio"] - 1) < 0.02
