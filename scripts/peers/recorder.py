"""A pytest plugin that writes the outcome of each test as JSON to the file that ``$PEERS_RECORD`` names.

The file is written anew after every test, so that a run that is cut off leaves what it had.
"""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

# Worst first: a test that fails in its teardown has failed.
ORDER = ("failed", "skipped", "passed")


class Recorder:
    def __init__(self, path: Path, module: str) -> None:
        self.path, self.module = path, module
        self.tests: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        test = self.tests.setdefault(report.nodeid, {"outcome": "passed", "seconds": 0.0})
        test["seconds"] = round(test["seconds"] + report.duration, 3)
        test["outcome"] = min(test["outcome"], report.outcome, key=ORDER.index)
        if report.failed:
            test["message"] = _last_line(report)
        if report.when == "teardown":
            self._write()

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.tests[report.nodeid or "collection"] = {
                "outcome": "failed",
                "seconds": 0.0,
                "message": _last_line(report),
            }

    def pytest_sessionfinish(self) -> None:
        self._write()

    def _write(self) -> None:
        from scripts.measuring import write_json

        package = importlib.import_module(self.module)
        record = {
            "version": getattr(package, "__version__", ""),
            "imported_from": str(package.__file__),
            "swapped": json.loads(os.environ.get("PEERS_SWAPPED", "{}")),
            "tests": self.tests,
        }
        write_json(record, self.path)


def _last_line(report: Any) -> str:
    lines = [line for line in str(report.longrepr).splitlines() if line.startswith("E ")]
    return lines[0][1:].strip()[:300] if lines else str(report.longrepr).strip()[-300:]


def pytest_configure(config: Any) -> None:
    path, module = os.environ.get("PEERS_RECORD"), os.environ.get("PEERS_MODULE")
    if path and module:
        config.pluginmanager.register(Recorder(Path(path), module), "peers_recorder")
