"""Quantizes a BF16 checkpoint by plain rounding: `python examples/quantize.py SOURCE TARGET --scheme w8a8`.

The least that a submission can be, and a starting point for a better one. Needs the base install alone.
"""

import argparse
from pathlib import Path

from lowbit_ray.demo.quantize import quantize

parser = argparse.ArgumentParser(
    description=__doc__, epilog="Example: python examples/quantize.py ./source ./candidate --scheme w4a16"
)
parser.add_argument("source", type=Path, help="folder with config.json and model.safetensors, BF16")
parser.add_argument("target", type=Path, help="folder to write")
parser.add_argument("--scheme", choices=("w8a8", "w4a16"), default="w8a8")
arguments = parser.parse_args()
print(quantize(arguments.source, arguments.target, arguments.scheme))
