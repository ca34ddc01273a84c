"""One engine and one image for all tests of this folder."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import pytest

from docker.engine.engine import Engine, engine
from docker.engine.requirements import DockerUnavailable

IMAGE = "daisychain:cpu"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder: they run by `make test-docker` alone."""
    for item in items:
        if item.path.is_relative_to(__file__.rpartition("/")[0]):
            item.add_marker(pytest.mark.docker)
            if item.get_closest_marker("timeout") is None:  # the first one's setup builds the image
                item.add_marker(pytest.mark.timeout(120, func_only=True))


@pytest.fixture(scope="session")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Give an engine with the project's image; skip all with one line where none is had."""
    try:
        with engine(tmp_path_factory.mktemp("dockerd") / "log") as ready:
            started = time.monotonic()
            ready.build("Dockerfile.cpu", IMAGE)
            print(f"built {IMAGE} in {time.monotonic() - started:.0f} s", file=sys.__stderr__)
            yield ready
    except DockerUnavailable as reason:
        pytest.skip(str(reason))
