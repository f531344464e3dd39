"""What tests of tools and loops need: providers that play a script, and a checker of transcripts."""

from toolkit.testing.events import EventCollector
from toolkit.testing.scripted import ScriptedProvider, ScriptedReply
from toolkit.testing.transcripts import check_transcript

__all__ = ["check_transcript", "EventCollector", "ScriptedProvider", "ScriptedReply"]
