"""The suite that every adapter passes: pytest classes to inherit, for the adapters here and for your own.

Whatever fulfils `toolkit.Provider` takes `ProviderConformance`, and says in a `Peer` how its other side is told what to
answer. An adapter that speaks HTTP takes `ServerConformance`, and says in a `Wire` how its format words answers; the
rest, a server on loopback that answers, refuses, breaks off and falls silent, is here::

    from toolkit.testing.conformance import ServerConformance

    class TestMyAdapter(ServerConformance):
        @pytest.fixture
        def wire(self) -> Wire:
            return MyWire()

Tests run on the backends that the fixture ``anyio_backend`` names, by default asyncio and trio. What a format can't
say, by its `Features`, is skipped with the reason. This module is the only one here that needs pytest.
"""

from toolkit.testing.conformance.provider_suite import KEY, Features, Peer, ProviderConformance, Wire, WirePeer
from toolkit.testing.conformance.server_suite import ServerConformance

__all__ = ["KEY", "Features", "Peer", "ProviderConformance", "ServerConformance", "Wire", "WirePeer"]
