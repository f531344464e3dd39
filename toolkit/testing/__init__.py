"""Tests of tools and loops: scripted, recording, replaying and failing providers, and a transcript checker.

Nothing here imports pytest. `toolkit.testing.conformance` is the suite for adapters, and `toolkit.testing.loopback` its
HTTP server. The fixtures `cassette`, `event_collector` and `scripted_provider` are available in every test where
toolkit is installed.
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
