"""Leaves out, before Python 3.12, what Python 3.11 can't even read."""

import sys

collect_ignore = ["pep695"] if sys.version_info < (3, 12) else []
