"""The outcomes of tasks in a file, line by line: what is there is not run again, and a cut last line is left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from toolkit.errors import ConfigurationError
from toolkit.evaluation.trials import Trial
from toolkit.json_text import write_json
from toolkit.private_files import make_private

__all__ = ["TrialFile"]

_MOST_TRIAL_BYTES = 200_000_000


class TrialFile:
    """Outcomes by what decides on them: the model, the way, the task, the tools and the settings.

    Each is written the moment it is there. The file is for its owner alone: it holds what models have said.

    Args:
        path: The file, made where there is none; None keeps outcomes in memory alone.

    Raises:
        ConfigurationError: The file can't be read or written, or is no such file.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._trials: dict[str, Trial] = {}
        if path is not None:
            try:
                make_private(path)
                self._trials.update(_read_trials(path))
            except OSError as error:
                raise ConfigurationError(f"{path} can't be used for outcomes: {error}") from error

    def find(self, key: str) -> Trial | None:
        """Return the outcome that is there under a key, or None."""
        return self._trials.get(key)

    def add(self, key: str, trial: Trial) -> None:
        """Keep an outcome; it takes the place of an earlier one.

        Raises:
            OSError: It can't be written.
        """
        self._trials[key] = trial
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(write_json({"key": key, **asdict(trial)}) + "\n")


_TRIAL: TypeAdapter[Trial] = TypeAdapter(Trial)


def _read_trials(path: Path) -> Iterator[tuple[str, Trial]]:
    if path.stat().st_size > _MOST_TRIAL_BYTES:
        raise ConfigurationError(f"{path} has more than {_MOST_TRIAL_BYTES:,} bytes: name another file")
    text = path.read_text(encoding="utf-8", errors="replace")
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            entry: dict[str, Any] = json.loads(line)
            key: str = entry.pop("key")
            yield key, _TRIAL.validate_python(entry)
        except (ValueError, TypeError, KeyError, AttributeError, ValidationError) as error:
            if number == len(lines):  # the process was killed while it wrote
                with path.open("a", encoding="utf-8") as file:
                    file.write("\n")
                return
            if number + 1 < len(lines) and "key" in line:
                continue
            raise ConfigurationError(
                f"{path}:{number} is no outcome of `toolkit eval`: name another file by --results"
            ) from error
