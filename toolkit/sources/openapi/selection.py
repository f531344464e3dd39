"""The choice of the operations of a document that become tools."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from toolkit.errors import OpenApiError
from toolkit.settings import check_fields
from toolkit.sources.openapi.operation import Operation
from toolkit.suggestions import ask_whether_meant, find_similar

__all__ = ["Filter", "Only", "check_filter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Only:
    """Operations that meet every condition that is given; each is met by any of its values.

    Args:
        operations: Ids, as the document writes them.
        tags: The document's tags.
        paths: The beginning of a path, such as ``/pets``: that path itself, and those under it.
        methods: Such as ``GET``.
    """

    operations: Collection[str] | None = None
    tags: Collection[str] | None = None
    paths: Collection[str] | None = None
    methods: Collection[str] | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, operation: Operation) -> bool:
        """Return whether an operation meets them."""
        return (
            (self.operations is None or operation.id in self.operations)
            and (self.tags is None or not set(self.tags).isdisjoint(operation.tags))
            and (self.paths is None or any(_is_path_under(operation.path, path) for path in self.paths))
            and (self.methods is None or operation.method in {method.upper() for method in self.methods})
        )


Filter: TypeAlias = Callable[[Operation], bool]
"""`Only`, or any function of an `Operation`."""


def check_filter(wanted: Filter | None, operations: Sequence[Operation], document: str) -> None:
    """Refuse an `Only` that names what the document doesn't have: it is a typo.

    Raises:
        OpenApiError: Names what is not there, and what is near.
    """
    if not isinstance(wanted, Only):
        return
    ids = [operation.id for operation in operations]
    tags = list(dict.fromkeys(tag for operation in operations for tag in operation.tags))
    _check_names(wanted.operations, ids, f"{document}: it has no operation")
    _check_names(wanted.tags, tags, f"{document}: no operation of it has the tag")
    _check_names(
        [method.upper() for method in wanted.methods or ()],
        list(dict.fromkeys(operation.method for operation in operations)),
        f"{document}: no operation of it has the method",
    )
    for path in wanted.paths or ():
        if not any(_is_path_under(operation.path, path) for operation in operations):
            near = find_similar(path, [operation.path for operation in operations])
            raise OpenApiError(f"{document}: no path of it begins with '{path}'{_suggest_names(near, ())}")


def _check_names(wanted: Collection[str] | None, there: Sequence[str], what: str) -> None:
    for name in wanted or ():
        if name not in there:
            raise OpenApiError(f"{what} '{name}'{_suggest_names(find_similar(name, there), there)}")


def _suggest_names(near: Sequence[str], there: Sequence[str]) -> str:
    if near:
        return f"; {ask_whether_meant(near)}"
    return f"; there are {_join_quoted(there[:10])}" if there else ""


def _join_quoted(names: Iterable[str]) -> str:
    return " or ".join(f"'{name}'" for name in names)


def _is_path_under(path: str, prefix: str) -> bool:
    stem = prefix.rstrip("/")
    return path in (prefix, stem) or path.startswith(f"{stem}/")
