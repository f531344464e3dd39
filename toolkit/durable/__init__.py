"""Runs that survive the end of their process: the logs in which they are kept, and what takes them up again."""

from toolkit.loop.journal import EntryWork, Journal, JournalEntry, JournalValue

__all__ = ["EntryWork", "Journal", "JournalEntry", "JournalValue"]
