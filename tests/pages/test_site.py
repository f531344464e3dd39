"""The site: every page has its place, it builds strictly and offline, and every link and anchor of it is there."""

import importlib
import pkgutil
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

import toolkit
from docs.site.reference import PUBLIC_MODULES, TABLE_PAGES, name_page

ROOT = Path(__file__).parents[2]
MODULE_PAGES = [name_page(module) for module in PUBLIC_MODULES]
GENERATED = {
    "changelog.md",
    "examples.md",
    "tutorial/program.md",
    *(f"reference/{name}" for name in ("index.md", *MODULE_PAGES, *TABLE_PAGES)),
}


def test_every_page_stands_in_the_navigation_once() -> None:
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    decisions = {page for page in pages if page.startswith("decisions/") and page != "decisions/README.md"}
    config = tomllib.loads((ROOT / "docs" / "zensical.toml").read_text(encoding="utf-8"))
    assert sorted(list_pages(config["project"]["nav"])) == sorted((pages - decisions) | GENERATED)


def list_pages(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    parts: list[Any] = [*entry.values()] if isinstance(entry, dict) else entry
    return [page for part in parts for page in list_pages(part)]


def test_every_package_that_has_public_names_is_in_the_reference() -> None:
    missing = [
        info.name
        for info in pkgutil.walk_packages(toolkit.__path__, "toolkit.")
        if info.ispkg
        and info.name not in (*PUBLIC_MODULES, "toolkit.redaction", "toolkit.schema")  # for the packages above them
        and not names_of(info.name) <= names_of(parent_of(info.name))
    ]
    assert missing == []


def names_of(package: str) -> set[str]:
    return set(getattr(importlib.import_module(package), "__all__", ()))


def parent_of(package: str) -> str:
    return package.rpartition(".")[0]


class Page(HTMLParser):
    """What a page links to, loads, and can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name in ("id", "name"):
                self.anchors.add(value)
            elif name == "src" or (name == "href" and tag == "link"):
                self.loaded.append(value)
            elif name == "href":
                self.links.append(value)


@pytest.mark.real
def test_no_link_of_the_site_is_broken_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    assert len(pages) > len(GENERATED)
    broken = [
        f"{path.relative_to(site)}: {link}"
        for path, page in pages.items()
        for link in {*page.links, *page.loaded}
        if is_broken(link, path, pages)
    ]
    assert broken == []
    foreign = {link for page in pages.values() for link in page.loaded if urlsplit(link).netloc}
    assert foreign == set(), "a page loads something from elsewhere"


@pytest.mark.real
@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_every_public_name_has_its_place_in_the_reference(site: Path, module: str) -> None:
    page = Page((site / "reference" / name_page(module).replace(".md", ".html")).read_text(encoding="utf-8"))
    assert sorted(name for name in names_of(module) if f"{module}.{name}" not in page.anchors) == []


def is_broken(link: str, path: Path, pages: dict[Path, Page]) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc or path.name == "404.html":
        return False
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if target not in pages:
        return not target.is_file()
    return bool(parts.fragment) and unquote(parts.fragment) not in pages[target].anchors
