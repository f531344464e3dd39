"""``python -m docs.site``: write the site to ``build/site``."""

import shutil
import subprocess
import sys
from pathlib import Path

from docs.site.llms import write_llms_files
from docs.site.pages import stage_pages

ROOT = Path(__file__).parents[2]


def main() -> int:
    """Stage the pages, build the site, and return the exit code of the build."""
    config = ROOT / "docs" / "zensical.toml"
    stage_pages(ROOT, ROOT / "build" / "docs")
    shutil.copy(config, ROOT / "build")
    # A cold build: a warm one leaves pages that are gone, and references out of pages that did not change.
    command = ["zensical", "build", "--config-file", "build/zensical.toml", "--clean", "--strict"]
    code = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode  # noqa: S603 - a command of ours
    if code == 0:
        write_llms_files(config, ROOT / "build" / "docs", ROOT / "build" / "site")
    return code


if __name__ == "__main__":
    sys.exit(main())
