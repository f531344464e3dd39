"""The console script ``toolkit``, installed outside of the package: ``--help`` does not wait for its import."""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec
from typing import Any


def main() -> int:
    """Run the command; the package itself is executed at the first use of something that it exports."""
    spec = find_spec("toolkit")
    assert spec is not None
    assert spec.loader is not None
    loader, package = spec.loader, module_from_spec(spec)

    def load(name: str) -> Any:
        if "__getattr__" in vars(package):
            del vars(package)["__getattr__"]
            loader.exec_module(package)
        return getattr(package, name)

    vars(package)["__getattr__"] = load  # how a module offers names that it has not yet
    sys.modules["toolkit"] = package
    from toolkit.cli.entry import start  # found through the package

    return start("toolkit")
