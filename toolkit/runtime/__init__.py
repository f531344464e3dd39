"""Threads, processes, locks and event loops: a level above anyio."""
