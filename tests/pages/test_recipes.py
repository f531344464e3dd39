"""The parts of recipes that `test_blocks` can't run: cells that await, and a window."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

RECIPES = Path(__file__).parents[2] / "docs" / "recipes"
CELL = re.compile(r"^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # what notebooks run on
async def test_the_cells_of_the_notebook_run(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"__name__": "notebook"}
    cells = CELL.findall((RECIPES / "notebook.md").read_text(encoding="utf-8"))
    assert len(cells) == 4
    for cell in cells:
        code: CodeType = compile(cell, "notebook.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        value = eval(code, names)  # as IPython runs a cell
        if value is not None:
            await value
    assert "mean gave 3" in capsys.readouterr().out
    assert names["result"].text == "You asked for a mean."


DRIVE = """
messagebox.askyesno = lambda *_: True
typed.insert(0, "Delete the note on milk.")
send()


def look() -> None:
    text = shown.get("1.0", "end")
    if "The note is gone." in text:
        print(text)
        window.destroy()
    else:
        window.after(50, look)


look()
window.mainloop()
"""


@pytest.mark.real
def test_the_window_of_the_desktop_recipe_shows_the_answer(tmp_path: Path) -> None:
    page = (RECIPES / "desktop.md").read_text(encoding="utf-8")
    (window,) = CELL.findall(page)
    program = tmp_path / "window.py"
    program.write_text(BLOCK.findall(page)[0] + window.replace("window.mainloop()\n", DRIVE), encoding="utf-8")
    command = [sys.executable, str(program)]
    if not os.environ.get("DISPLAY"):
        if shutil.which("xvfb-run") is None:
            pytest.skip("no display: apt-get install xvfb")
        command = ["xvfb-run", "-a", *command]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if "No module named '_tkinter'" in run.stderr or "No module named 'tkinter'" in run.stderr:
        pytest.skip("this Python has no tkinter: apt-get install python3-tk")
    assert "> Delete the note on milk.\nThe note is gone." in run.stdout, run.stderr
