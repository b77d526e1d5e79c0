"""The service of the settings' ledger without rate limits, for benchmarks: `python benchmarks/unlimited.py PORT`."""

from __future__ import annotations

import sys

import uvicorn

from lowbit_ray.ledger import open_ledger
from lowbit_ray.service.app import create_app
from lowbit_ray.service.limits import Limits, Rate
from lowbit_ray.settings import settings

BOUNDLESS = Rate(1e9, 1e9)


def main() -> None:
    """Serves on loopback until it is ended."""
    limits = Limits(reads=BOUNDLESS, writes=BOUNDLESS, wrong_tokens=BOUNDLESS)
    app = create_app(open_ledger(settings().ledger), settings(), limits=limits)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
