"""A running chat server, and items made by hand."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lowbit_ray.measure.accuracy.items import ContainmentTarget, DomainName, Item, Message
from lowbit_ray.measure.endpoint import Endpoint

SERVER = Path(__file__).parent / "chat_server.py"


@pytest.fixture(scope="session")
def chat() -> Iterator[Endpoint]:
    process = subprocess.Popen([sys.executable, str(SERVER)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield Endpoint(url=f"http://127.0.0.1:{int(process.stdout.readline())}", model="fake")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class MakeItem:
    """Items whose question tells the chat server what to do."""

    def __call__(
        self,
        question: str,
        *,
        wanted: str = "yes",
        name: str = "",
        domain: DomainName = "retrieval",
        cluster: str = "",
    ) -> Item:
        identity = name or f"item {question}"
        return Item(
            id=identity,
            domain=domain,
            messages=(Message(role="user", content=question),),
            target=ContainmentTarget(any_of=(wanted,)),
            cluster=cluster or identity,
        )


@pytest.fixture(scope="session")
def make_item() -> MakeItem:
    return MakeItem()
