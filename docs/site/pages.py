"""The pages that the site is built from: those of ``docs/``, and those that are made here."""

import shutil
from pathlib import Path

from docs.site.examples import write_examples_page
from docs.site.reference import write_reference_pages
from docs.site.tutorial import write_program_page


def stage_pages(root: Path, target: Path) -> None:
    """Copy the pages of ``docs/`` to ``target``, and write the generated ones beside them."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(root / "docs", target, ignore=shutil.ignore_patterns("site", "*.py", "*.toml", "__pycache__"))
    shutil.copy(root / "CHANGELOG.md", target / "changelog.md")
    (target / "examples.md").write_text(write_examples_page(root / "examples"), encoding="utf-8")
    (target / "tutorial" / "program.md").write_text(write_program_page(root / "docs" / "tutorial"), encoding="utf-8")
    write_reference_pages(target / "reference")
