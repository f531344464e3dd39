"""Parts for tests of tools and loops: providers that play, record and fail, and a checker of transcripts.

Nothing here imports pytest. `toolkit.testing.conformance` is the suite that every adapter passes, and
`toolkit.testing.loopback` the HTTP server that it speaks to; the fixtures `cassette`, `event_collector` and
`scripted_provider` are there in every test where toolkit is installed.
"""

from toolkit.testing.cassettes import Matching, RecordingProvider, ReplayProvider
from toolkit.testing.scripted import (
    FAULTS,
    Fault,
    FlakyProvider,
    FunctionProvider,
    ModelFunction,
    ScriptedProvider,
    ScriptedReply,
)
from toolkit.testing.transcripts import EventCollector, check_transcript

__all__ = [
    "FAULTS",
    "EventCollector",
    "Fault",
    "FlakyProvider",
    "FunctionProvider",
    "Matching",
    "ModelFunction",
    "RecordingProvider",
    "ReplayProvider",
    "ScriptedProvider",
    "ScriptedReply",
    "check_transcript",
]
