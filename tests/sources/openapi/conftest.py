"""The application that calls go to."""

from collections.abc import Iterator

import pytest

from tests.sources.openapi.application import Application, serving


@pytest.fixture(scope="module")
def running() -> Iterator[Application]:
    with serving() as application:
        yield application


@pytest.fixture
def application(running: Application) -> Application:
    running.requests.clear()
    return running
