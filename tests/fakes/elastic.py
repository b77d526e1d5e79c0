"""Ray's provider of nodes for tests, whose nodes count their memory themselves, as those of the clouds do.

Ray's own hands `memory` to a node as if it were a resource of somebody's invention, which the node refuses; but an
autoscaler must know of it, as pods ask for memory.
"""

from typing import Any

from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider

__all__ = ["ElasticProvider"]


class ElasticProvider(FakeMultiNodeProvider):  # type: ignore[misc]  # Ray carries no types here
    """Starts nodes as processes of this machine."""

    def _create_node_with_resources_and_labels(
        self, node_config: Any, tags: Any, count: int, resources: dict[str, float], labels: dict[str, str]
    ) -> None:
        told = {name: amount for name, amount in resources.items() if name != "memory"}
        super()._create_node_with_resources_and_labels(node_config, tags, count, told, labels)
