"""Names of parametrized cases that are the same in each process that collects them."""

import re

__all__ = ["name_case"]

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def name_case(value: object) -> str:
    """Return `value` as text, without the addresses of objects: tests run in several processes are matched by name."""
    return _ADDRESS.sub("", str(value))
