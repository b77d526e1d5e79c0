"""lowbit_ray: an evaluation cluster for low-bit language models, on Ray."""

__version__ = "0.1.0"
