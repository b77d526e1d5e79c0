"""A vLLM server's own accounts: weights, KV pool and the rest, one parser a release range."""

from lowbit_ray.engines.accounts.kernels import chosen_kernels
from lowbit_ray.engines.accounts.metrics import cache_config
from lowbit_ray.engines.accounts.offload import offload_findings
from lowbit_ray.engines.accounts.reading import keeps_accounts, read_startup
from lowbit_ray.engines.accounts.startup import MaxConcurrency, Startup

__all__ = [
    "MaxConcurrency",
    "Startup",
    "cache_config",
    "chosen_kernels",
    "keeps_accounts",
    "offload_findings",
    "read_startup",
]
