"""A Ray cluster of processes, and what is asked of it."""

from collections.abc import Iterator

import pytest
from cluster.scene import GPUS, Scene


@pytest.fixture(scope="package")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A head and a node of four imagined GPUs; tests put back what they break."""
    scene = Scene.build(tmp_path_factory.mktemp("c"))
    try:
        scene.cluster.start_head()
        scene.cluster.add_node(GPUS)
        scene.warm_up()
        yield scene
    finally:
        scene.close()
