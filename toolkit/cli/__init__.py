"""The command `toolkit`: tools from anywhere listed, checked, called, talked with and served, on a terminal or without.

`application` declares the interface and imports Click alone, so that ``--help`` is quick; what a command does is in the
modules beside it, which are imported when it runs.
"""
