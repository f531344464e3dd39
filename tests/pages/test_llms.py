"""The files for machines: each page of the site is listed and is there, with each public name; no link is broken."""

import importlib
import re
import tomllib
from pathlib import Path

import pytest

from docs.site.llms import list_pages, write_llms_files
from docs.site.pages import stage_pages
from docs.site.reference import PUBLIC_MODULES

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    stage_pages(ROOT, folder / "docs")
    (folder / "site").mkdir()
    write_llms_files(ROOT / "docs" / "zensical.toml", folder / "docs", folder / "site")
    return folder / "site"


def links_of(text: str) -> list[str]:
    prose = re.sub(r"^ *```.*?^ *```$|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)
    return [found["target"] for found in LINK.finditer(prose)]


def test_every_page_is_listed_once_and_is_there(site: Path) -> None:
    text = (site / "llms.txt").read_text(encoding="utf-8")
    nav = tomllib.loads((ROOT / "docs" / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
    listed = re.findall(r"^- \[.+?\]\(([^)]+)\)(?:: .+)?$", text, re.MULTILINE)
    decisions = {f"decisions/{path.name}" for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md")}
    assert sorted(listed) == sorted({*list_pages(nav), *decisions})
    assert [page for page in listed if not (site / page).is_file()] == []
    assert re.match(r"# toolkit\n\n> .+\n\n## ", text), "the form of llmstxt.org: a title, a summary, sections of links"


def test_the_whole_has_every_page_and_every_public_name(site: Path) -> None:
    whole = (site / "llms-full.txt").read_text(encoding="utf-8")
    listed = re.findall(r"^<!-- (\S+\.md) -->$", whole, re.MULTILINE)
    assert sorted(listed) == sorted(str(path.relative_to(site)) for path in site.rglob("*.md"))
    headings = set(re.findall(r"^## (toolkit\S+)$", whole, re.MULTILINE))
    names = {f"{module}.{name}" for module in PUBLIC_MODULES for name in importlib.import_module(module).__all__}
    assert names - headings == set()
    assert "\n::: " not in whole


def test_no_link_of_a_page_is_broken(site: Path) -> None:
    broken = [
        f"{path.relative_to(site)}: {link}"
        for path in [*site.rglob("*.md"), site / "llms.txt", site / "llms-full.txt"]
        for link in links_of(path.read_text(encoding="utf-8"))
        if "://" not in link and not link.startswith("#") and not (path.parent / link.partition("#")[0]).is_file()
    ]
    assert broken == []
