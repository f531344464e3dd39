"""Every async test runs on asyncio and on trio, and what is random is the same each time."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How fast the machine is decides nothing, and a run finds what the last one found; `poe full` looks for more.
_UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fixed", _UNHURRIED, derandomize=True, database=None)
settings.register_profile("new", _UNHURRIED)
settings.load_profile("fixed")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    backend: str = request.param
    return backend


@pytest.fixture(scope="session", autouse=True)
def one_certificate() -> Iterator[None]:
    """Let clients trust one authority, which signs nothing: each reads all of them, and the system's take it 20 ms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(Path(__file__).with_name("nobody.pem")))
        yield
