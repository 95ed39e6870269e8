"""A file appears whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from trnqc.errors import InputError


def write_text(path: str | Path, text: str) -> None:
    """Write beside the goal, then rename over it. InputError: the place cannot be written."""
    path = Path(path)
    try:
        handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", text=True)
        try:
            # mkstemp makes files for the owner only; a report is as public as other new files.
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(handle, 0o666 & ~mask)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(aside, path)
        except BaseException:
            Path(aside).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"{path}: expected a place that can be written: {error.strerror or error}") from error
