"""The scripts are run from the repository's root, as `python -m benchmarks.gpu.run`; they are no installed package."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
