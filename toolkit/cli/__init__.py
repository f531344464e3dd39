"""The command `toolkit`: lists, checks, calls and serves tools, and chats with models that have them.

`application` declares the commands and imports only Click, so that ``--help`` is quick; the modules beside it do the
work and are imported when a command runs.
"""
