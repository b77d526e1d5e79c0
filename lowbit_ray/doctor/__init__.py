"""Is everything there that an evaluation needs? `lowbit doctor`: each thing tried, and explained where it is not.

stores.py     the ledger, the hub
host.py       one machine: GPUs, disk, vLLM, sandbox, niceness
cluster.py    Ray: its nodes, and host.py's questions on each of them
"""
