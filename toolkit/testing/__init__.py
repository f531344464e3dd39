"""What tests of tools and loops need: providers that play a script, and a checker of transcripts."""

from toolkit.testing.scripted import ScriptedProvider, ScriptedReply

__all__ = ["ScriptedProvider", "ScriptedReply"]
