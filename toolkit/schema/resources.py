"""The parts of a JSON Schema: by which draft each is read, and where each reference in it leads.

Nothing is fetched. A reference leads to a part of the same document, by its place, its ``$id`` or an anchor, or to the
schemas of JSON Schema itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from toolkit.dataclass import dataclass
from toolkit.errors import SchemaError
from toolkit.schema.nodes import SCHEMA_KEYWORDS, SCHEMA_LISTS, SCHEMA_MAPS, Node, is_array, is_object

__all__ = ["NEWEST_DRAFT", "Place", "Resources", "applies", "with_plain_references"]

NEWEST_DRAFT = 2020
_DRAFTS = {
    "json-schema.org/draft-04/schema": 4,
    "json-schema.org/draft-06/schema": 6,
    "json-schema.org/draft-07/schema": 7,
    "json-schema.org/draft/2019-09/schema": 2019,
    "json-schema.org/draft/2020-12/schema": 2020,
    "json-schema.org/draft-03/schema": 3,
}
_OF_JSON_SCHEMA = ("https://json-schema.org/", "http://json-schema.org/")
# The first and the last draft that know a keyword; the others are in all of them.
_KNOWN_FROM = {
    "const": 6, "contains": 6, "propertyNames": 6, "if": 7, "then": 7, "else": 7, "dependentRequired": 2019,
    "dependentSchemas": 2019, "unevaluatedItems": 2019, "unevaluatedProperties": 2019, "minContains": 2019,
    "maxContains": 2019, "$anchor": 2019, "$recursiveRef": 2019, "$recursiveAnchor": 2019, "prefixItems": 2020,
    "$dynamicRef": 2020, "$dynamicAnchor": 2020, "contentSchema": 2019,
}  # fmt: skip
_KNOWN_TO = {"additionalItems": 2019, "$recursiveRef": 2019, "$recursiveAnchor": 2019}


def applies(keyword: str, draft: int) -> bool:
    """Return whether a draft knows a keyword."""
    return _KNOWN_FROM.get(keyword, 0) <= draft <= _KNOWN_TO.get(keyword, NEWEST_DRAFT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a part of a schema stands.

    Args:
        base: The URI against which its references are read.
        draft: By which draft it is read: 4, 6, 7, 2019 or 2020.
        path: Where it is in its document, as ``$.properties.name``.
        pointer: The same as a JSON pointer.
    """

    base: str
    draft: int
    path: str
    pointer: str


class Resources:
    """A document, with all parts of it that can be referred to."""

    def __init__(self, root: Node, subject: str) -> None:
        self.subject = subject
        self.has_dynamic_references = False
        self._places: dict[int, Place] = {}
        self._roots: dict[str, Any] = {}
        self._anchors: dict[tuple[str, str], Node] = {}
        self._dynamic: dict[tuple[str, str], Node] = {}
        self._kept: list[Node] = []  # an id of what is no more could be taken by another
        draft = self._read_draft(root, NEWEST_DRAFT)
        self._roots[""] = root
        self._index_parts(root, Place(base="", draft=draft, path="$", pointer=""))

    def place_of(self, node: Node) -> Place:
        """Return where a part stands that was found here."""
        return self._places[id(node)]

    def parts(self) -> list[Node]:
        """Return all parts that are known by now."""
        return self._kept

    def resolve(self, reference: str, place: Place) -> Any:
        """Return the schema that a reference leads to.

        Raises:
            SchemaError: It leads out of the document, or to nothing.
        """
        uri, fragment = _join_reference(place.base, reference)
        root = self._roots.get(uri)
        if root is None:
            root = self._load_standard(uri)
        if root is None:
            raise SchemaError(
                self.subject,
                f"it refers to {reference!r}, which is never fetched: put what it means into $defs (at {place.path})",
            )
        if not fragment:
            return root
        found = self._follow_pointer(root, unquote(fragment)) if fragment.startswith("/") else None
        if found is None:
            found = self._anchors.get((uri, unquote(fragment)))
        if found is None:
            raise SchemaError(self.subject, f"it refers to {reference!r}, which is not in it (at {place.path})")
        return found

    def anchored(self, base: str, name: str) -> Node | None:
        """Return the part of a resource that is a dynamic anchor of a name."""
        return self._dynamic.get((base, name))

    def root_of(self, base: str) -> Any:
        """Return the part that has a URI."""
        return self._roots.get(base)

    def _load_standard(self, uri: str) -> Any:
        if not uri.startswith(_OF_JSON_SCHEMA):
            return None
        # Hardly a schema refers to those. It has no types of its own.
        from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped] # pyright: ignore[reportMissingTypeStubs] # noqa: PLC0415

        known: Any = REGISTRY
        found = known.get(uri) or known.get(f"{uri}#")
        if found is None:
            return None
        schema: Node = found.contents
        self._roots[uri] = schema
        self._index_parts(schema, Place(base=uri, draft=self._read_draft(schema, NEWEST_DRAFT), path=uri, pointer=""))
        return schema

    def _read_draft(self, node: Node, otherwise: int) -> int:
        given = node.get("$schema")
        if not isinstance(given, str):
            return otherwise
        draft = _DRAFTS.get(given.rstrip("#").partition("://")[2], otherwise)
        if draft == 3:
            raise SchemaError(self.subject, "it is of draft 3; the drafts 4, 6, 7, 2019-09 and 2020-12 are read")
        return draft

    def _index_parts(self, node: Node, place: Place) -> None:
        waiting: list[tuple[Node, Place]] = [(node, place)]
        while waiting:
            node, place = waiting.pop()
            if id(node) in self._places:
                continue
            place = self._note_names(node, place)
            self._places[id(node)] = place
            self._kept.append(node)
            for steps, part in _list_parts(node, place.draft):
                path = place.path + "".join(_write_step(step) for step in steps)
                pointer = place.pointer + "".join(f"/{_escape_step(str(step))}" for step in steps)
                waiting.append((part, Place(base=place.base, draft=place.draft, path=path, pointer=pointer)))

    def _note_names(self, node: Node, place: Place) -> Place:
        """Note the names that a part gives itself, and return its place by its own base and draft."""
        base, draft = place.base, place.draft
        own = node.get("id" if draft == 4 else "$id")
        if isinstance(own, str) and not (draft <= 7 and "$ref" in node):
            uri, fragment = _join_reference(base, own)
            if fragment and draft <= 7:
                self._anchors[uri, fragment] = node
            if uri != base:
                base, draft = uri, self._read_draft(node, draft)
                self._roots.setdefault(uri, node)
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := node.get(keyword), str) and applies(keyword, draft):
                self._anchors[base, name] = node
                if keyword == "$dynamicAnchor":
                    self._dynamic[base, name] = node
        if "$dynamicRef" in node or "$recursiveRef" in node:
            self.has_dynamic_references = True
        return Place(base=base, draft=draft, path=place.path, pointer=place.pointer)

    def _follow_pointer(self, root: Any, pointer: str) -> Any:
        found: Any = root
        place = self._places[id(root)]
        path, written = place.path, place.pointer
        for raw in pointer.split("/")[1:]:
            step = raw.replace("~1", "/").replace("~0", "~")
            if is_object(found) and step in found:
                found = found[step]
                path += _write_step(step)
            elif is_array(found) and step.isdecimal() and int(step) < len(found):
                found = found[int(step)]
                path += _write_step(int(step))
            else:
                return None
            written += f"/{_escape_step(step)}"
            place = self._places.get(id(found), place)
        if is_object(found):
            # Under no keyword that holds schemas, it has become one by being referred to.
            self._index_parts(found, Place(base=place.base, draft=place.draft, path=path, pointer=written))
            return found
        return found if isinstance(found, bool) else None


def _join_reference(base: str, reference: str) -> tuple[str, str]:
    whole = urldefrag(base)[0] + reference if reference.startswith("#") else urljoin(base, reference)
    uri, fragment = urldefrag(whole)
    return uri, fragment


def _list_parts(node: Node, draft: int) -> Iterator[tuple[tuple[str | int, ...], Node]]:
    for keyword, value in node.items():
        if not applies(keyword, draft):
            continue
        if keyword in SCHEMA_MAPS and is_object(value):
            yield from (((keyword, name), part) for name, part in value.items() if is_object(part))
        elif (keyword in SCHEMA_LISTS or keyword == "items") and is_array(value):
            yield from (((keyword, index), part) for index, part in enumerate(value) if is_object(part))
        elif keyword in SCHEMA_KEYWORDS and is_object(value):
            yield (keyword,), value


def _write_step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if step.replace("$", "_").isidentifier() else f"[{step[:80]!r}]"


def _escape_step(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1").replace("%", "%25")


def with_plain_references(resources: Resources, root: Node, *, without_default: Collection[int] = ()) -> dict[str, Any]:
    """Return the schema with each reference in it written as a pointer from its root, and old drafts as the newest.

    It is for those who look into a schema, not for those who check: a dynamic reference is written as what it leads to
    from there, and schemas of JSON Schema itself are any value.

    Args:
        resources: The parts of the schema.
        root: The schema.
        without_default: The ids of the parts whose default is left out.
    """
    known = {id(part): resources.place_of(part).pointer for part in resources.parts()}

    def plain(node: Any) -> Any:
        if is_array(node):
            return [plain(item) for item in node]
        if not is_object(node):
            return node
        if id(node) not in known:
            return {name: plain(item) for name, item in node.items()}
        modern = _modernize_node(node, resources, known)
        if id(node) in without_default:
            modern.pop("default", None)
        return {name: plain(item) for name, item in modern.items()}

    return {**plain(root)}


def _modernize_node(node: Node, resources: Resources, pointers: Mapping[int, str]) -> dict[str, Any]:
    """Return a node as the newest draft writes it, with pointers from the root for references.

    In draft 4, ``{"minimum": 1, "exclusiveMinimum": true}`` becomes ``{"exclusiveMinimum": 1}``.
    """
    place = resources.place_of(node)
    written = {key: value for key, value in node.items() if key not in ("$id", "$anchor", "$dynamicAnchor")}
    written = _modernize_references(written, place, resources, pointers)
    if place.draft == 4:
        for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            if written.pop(exclusive, None) is True and limit in written:
                written[exclusive] = written.pop(limit)
    if place.draft < 2020 and is_array(written.get("items")):
        written["prefixItems"] = written.pop("items")
        if "additionalItems" in written:
            written["items"] = written.pop("additionalItems")
    return written


def _modernize_references(
    written: dict[str, Any], place: Place, resources: Resources, pointers: Mapping[int, str]
) -> dict[str, Any]:
    """Write the references of a node as pointers; until draft 7, one hides what stands beside it."""
    found: list[str] = []
    for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
        reference = written.pop(keyword, None)
        if not isinstance(reference, str) or not applies(keyword, place.draft):
            continue
        if place.draft <= 7:
            written = {key: written[key] for key in ("title", "description", "$defs", "definitions") if key in written}
        target = resources.resolve(reference, place)
        if is_object(target) and not resources.place_of(target).path.startswith("http"):
            found.append(f"#{pointers[id(target)]}")
    if found:
        written["$ref"] = found[0]
    if found[1:]:
        written["allOf"] = [*written.get("allOf", ()), *({"$ref": pointer} for pointer in found[1:])]
    return written
