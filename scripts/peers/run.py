"""One test file of a peer, run in one way, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts import ROOT
from scripts.peers.peer import Peer
from scripts.peers.trees import copied


@dataclass(frozen=True)
class Limits:
    """threads: of OpenMP in each process; seconds: after which a file's run is ended."""

    threads: int = 1
    seconds: float = 3600.0


def run(peer: Peer, tree: Path, file: Path, way: str, limits: Limits, controlled: Sequence[str] = ()) -> dict[str, Any]:
    """Outcomes of a file's tests: ``tests`` by identifier, ``exit`` of pytest, what was imported, what was swapped.

    controlled: tests to run, and they alone, under the control of the way.
    """
    own = peer.controls[way] if controlled else peer.ways.get(way)
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        scratch = Path(folder)
        record = scratch / "record.json"
        target = str(copied(tree, file, scratch))
        targets = [f"{target}::{test}" for test in controlled] or [target]
        command = [sys.executable, "-m", "pytest", *_options(peer, own is not None, scratch), *targets]
        text, code = _completed(command, scratch, _environment(peer, own or {}, record, limits), limits.seconds)
        results = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {"tests": {}}
    if "imported_from" in results and Path(results["imported_from"]).is_relative_to(tree):
        raise AssertionError(f"{results['imported_from']} was tested, not the installed {peer.name}")
    results["tests"] = {test.split("::", 1)[-1]: outcome for test, outcome in results["tests"].items()}
    # 0: all passed, 1: some failed, 5: none chosen. Anything else is a run that came to no end of its own.
    return results | {"exit": code} | ({} if code in (0, 1, 5) else {"output": text[-2000:]})


def _options(peer: Peer, swapped: bool, scratch: Path) -> list[str]:
    plugins = ["scripts.peers.recorder", *([peer.swap] if swapped else [])]
    chosen = [word for name in plugins for word in ("-p", name)]
    places = ["--rootdir", str(scratch), "-c", os.devnull]
    return ["-q", *places, "--import-mode=importlib", "-p", "no:cacheprovider", *chosen, *peer.arguments]


def _environment(peer: Peer, own: Mapping[str, str], record: Path, limits: Limits) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    ours = {
        "PYTHONPATH": path,
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": str(limits.threads),
        "PEERS_RECORD": str(record),
        "PEERS_MODULE": peer.imported,
    }
    return os.environ | ours | dict(own)


def _completed(command: list[str], cwd: Path, environment: dict[str, str], seconds: float) -> tuple[str, int]:
    """Output and exit status; -1 for a process that was ended at its time limit."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=environment,
            timeout=seconds,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except subprocess.TimeoutExpired as error:
        text = error.stdout or b""
        return text.decode(errors="replace") if isinstance(text, bytes) else text, -1
    return done.stdout, done.returncode
