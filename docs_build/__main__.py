"""``python -m docs_build``: write the site to ``build/site``."""

import subprocess
import sys
from pathlib import Path

from docs_build.llms import write_llms_files
from docs_build.pages import stage_pages

ROOT = Path(__file__).parents[1]


def main() -> int:
    """Stage the pages, build the site, and return the exit code of the build."""
    stage_pages(ROOT, ROOT / "build" / "docs")
    # A cold build: a warm one leaves pages that are gone, and references out of pages that did not change.
    command = ["zensical", "build", "--config-file", "zensical.toml", "--clean", "--strict"]
    code = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode  # noqa: S603 - a command of ours
    if code == 0:
        write_llms_files(ROOT / "zensical.toml", ROOT / "build" / "docs", ROOT / "build" / "site")
    return code


if __name__ == "__main__":
    sys.exit(main())
