"""The site for machines: ``llms.txt`` lists the pages, ``llms-full.txt`` holds them, and each is there as Markdown."""

import posixpath
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

_DIRECTIVE = re.compile(r"^::: (?P<module>[\w.]+)$", re.MULTILINE)
_LINK = re.compile(r"(?P<before>\]\()(?P<target>[^)\s#:]+\.md)(?P<anchor>#[^)\s]*)?\)")
_FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)


def write_llms_files(config: Path, staged: Path, site: Path) -> None:
    """Write the pages of the navigation into the site as Markdown, one by one and in one file, and the list of them.

    Args:
        config: The configuration of the site, with its navigation.
        staged: The pages that the site is built from.
        site: The folder of the built site.
    """
    project = tomllib.loads(config.read_text(encoding="utf-8"))["project"]
    extensions = griffe.load_extensions("docs.site.docstrings")
    package = griffe.load(
        "toolkit", search_paths=[str(config.parent.parent)], extensions=extensions, resolve_aliases=True
    )
    listed = [f"# {project['site_name']}", "", f"> {project['site_description']}"]
    whole: list[str] = []
    for section, pages in _list_sections(project["nav"], staged):
        listed += ["", f"## {section}", ""]
        for page in pages:
            text = _strip_front_matter((staged / page).read_text(encoding="utf-8"))
            text = _DIRECTIVE.sub(lambda found: write_module(package, found["module"]), text)
            target = site / page
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            summary = _read_first_sentence(text)
            listed.append(f"- [{_read_title(text)}]({page}){f': {summary}' if summary else ''}")
            whole.append(f"<!-- {page} -->\n\n{_link_from_root(text, page).strip()}\n")
    (site / "llms.txt").write_text("\n".join(listed) + "\n", encoding="utf-8")
    (site / "llms-full.txt").write_text("\n\n".join(whole), encoding="utf-8")


def write_module(package: griffe.Object | griffe.Alias, module: str) -> str:
    """Return the public names of a module in Markdown: signatures and docstrings."""
    names = package[module.removeprefix("toolkit").removeprefix(".")] if module != "toolkit" else package
    parts = [names.docstring.value] if names.docstring else []
    parts += [_write_name(f"{module}.{name}", names[str(name)]) for name in names.exports or ()]
    return "\n\n".join(parts)


def _write_name(path: str, member: griffe.Object | griffe.Alias) -> str:
    target = member.final_target if isinstance(member, griffe.Alias) else member
    parts = [f"## {path}"]
    if isinstance(target, griffe.Class | griffe.Function):
        parts.append(f"```text\n{_write_signature(target)}\n```")
    if target.docstring:
        parts.append(target.docstring.value)
    if isinstance(target, griffe.Class):
        methods = (method for method in target.members.values() if isinstance(method, griffe.Function))
        parts += [
            f"### {path}.{method.name}\n\n```text\n{_write_signature(method)}\n```\n\n{method.docstring.value}"
            for method in methods
            if method.is_public and method.docstring
        ]
    return "\n\n".join(parts)


def _write_signature(target: griffe.Class | griffe.Function) -> str:
    arguments: list[str] = []
    for each in target.parameters:
        if each.name in ("self", "cls"):
            continue
        if each.kind is griffe.ParameterKind.keyword_only and not any(part.startswith("*") for part in arguments):
            arguments.append("*")
        arguments.append(_write_parameter(each))
    gives = f" -> {target.returns}" if isinstance(target, griffe.Function) and target.returns else ""
    return f"{target.name}({', '.join(arguments)}){gives}"


def _write_parameter(parameter: griffe.Parameter) -> str:
    stars = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}
    name = stars.get(parameter.kind, "") + parameter.name if parameter.kind else parameter.name
    hint = f": {parameter.annotation}" if parameter.annotation else ""
    default = f" = {parameter.default}" if not parameter.required and not name.startswith("*") else ""
    return name + hint + default


def _list_sections(nav: list[dict[str, Any]], staged: Path) -> Iterator[tuple[str, list[str]]]:
    sections = [(title, list(list_pages(content))) for entry in nav for title, content in entry.items()]
    yield from sections
    listed = {page for _, pages in sections for page in pages}
    # By the format's own rule, what stands under this title may be left unread.
    yield "Optional", sorted({path.relative_to(staged).as_posix() for path in staged.rglob("*.md")} - listed)


def list_pages(entry: Any) -> Iterator[str]:
    """Yield the pages of a part of the navigation."""
    if isinstance(entry, str):
        yield entry
        return
    parts: list[Any] = [*entry.values()] if isinstance(entry, dict) else entry
    for part in parts:
        yield from list_pages(part)


def _strip_front_matter(text: str) -> str:
    return text.split("---\n", 2)[2].lstrip() if text.startswith("---\n") else text


def _read_title(text: str) -> str:
    return next(line.removeprefix("# ") for line in text.splitlines() if line.startswith("# "))


def _read_first_sentence(text: str) -> str:
    prose = _FENCED.sub("", text)
    paragraphs = (" ".join(part.split()) for part in prose.split("\n\n"))
    first = next((part for part in paragraphs if part and part[0] not in "#|<-!["), "")
    sentence = re.split(r"(?<=[.:?!])\s", first, maxsplit=1)[0]
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", sentence).rstrip(":")


def _link_from_root(text: str, page: str) -> str:
    folder = posixpath.dirname(page)
    return _LINK.sub(
        lambda found: (
            f"{found['before']}{posixpath.normpath(posixpath.join(folder, found['target']))}{found['anchor'] or ''})"
        ),
        text,
    )
