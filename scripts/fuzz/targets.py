"""Readers of files and texts that strangers write, each with valid input to begin with."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts import ROOT


@dataclass(frozen=True)
class Target:
    """A reader.

    Attributes
    ----------
    seeds
        Valid inputs.
    read
        Reads a file with the damaged input. What it returns does not matter.
    suffix
        The suffix of the file.
    """

    seeds: Callable[[], list[bytes]]
    read: Callable[[Path], Any]
    suffix: str = ".txt"


def _molecules() -> list[bytes]:
    return [path.read_bytes() for path in sorted((ROOT / "examples" / "molecules").glob("water*.xyz"))[:2]]


def _xyz(path: Path) -> Any:
    from trnqc.mp2.reference.xyz import read_frames

    return read_frames(path)


def _tns(path: Path) -> Any:
    from trnqc.sparse import read_tns

    return read_tns(path)


def _expressions() -> list[bytes]:
    return [(ROOT / "examples" / "ccsd.txt").read_bytes(), b"r[i,j] = sum(k) P(i/j) a[i,k] * b[k,j]\n"]


def _program(path: Path) -> Any:
    from trnqc.expression.text import parse

    return parse(path.read_text(encoding="utf-8", errors="replace"))


def _einsum(path: Path) -> Any:
    import numpy as np

    from trnqc import einsum_plan

    return einsum_plan(path.read_text(encoding="utf-8", errors="replace"), *[np.zeros((2, 2))] * 3)


def _profile(path: Path) -> Any:
    from trnqc.profiling.readers import read

    return read(path)


def _profiles() -> list[bytes]:
    trace = {"traceEvents": [{"ph": "X", "name": "k", "cat": "kernel", "ts": 1.0, "dur": 2.0, "pid": 0, "tid": 0}]}
    summary = {"summary": [{"total_time": 1e-3, "tensor_engine_active_time_percent": 0.5}]}
    return [json.dumps(trace).encode(), json.dumps(summary).encode()]


def _record(path: Path) -> Any:
    from trnqc.tuning.records import read_all

    return read_all(path.parent, writable=False)


def _records() -> list[bytes]:
    return [path.read_bytes() for path in sorted((ROOT / "trnqc" / "tuning" / "shipped").glob("*.json"))[:2]]


def _result(path: Path) -> Any:
    from trnqc.mp2.result import MP2Result

    return MP2Result.load(path)


def _results() -> list[bytes]:
    import numpy as np

    from trnqc.mp2.energy import mp2_energy

    rng = np.random.default_rng(0)
    result = mp2_energy(rng.random((2, 3, 4)), np.array([-2.0, -1.0]), np.array([1.0, 2.0, 3.0]), backend="cpu")
    return [result.to_json().encode()]


def _description(path: Path) -> Any:
    from trnqc.mace.files import load_description

    return load_description(path)


def _descriptions() -> list[bytes]:
    """A description of a model is a NumPy archive; a small one with the wrong contents is a seed too."""
    import io

    import numpy as np

    stream = io.BytesIO()
    np.savez(stream, description=np.frombuffer(b'{"format": 1}', np.uint8), a0=np.zeros((2, 3)))
    return [stream.getvalue()]


def _schema(path: Path) -> Any:
    from trnqc.interfaces.qcschema import run

    request = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    answer = run(request)
    if not answer.success and answer.error.error_type not in ("input_error", "resource_error", "convergence_error"):
        raise AssertionError(f"{answer.error.error_type}: {answer.error.error_message}")
    return answer


def _schemas() -> list[bytes]:
    request = {
        "schema_name": "qcschema_input",
        "schema_version": 1,
        "molecule": {"symbols": ["H", "H"], "geometry": [0, 0, 0, 0, 0, 1.4]},
        "driver": "energy",
        "model": {"method": "mp2", "basis": "sto-3g"},
        "keywords": {},
    }
    return [json.dumps(request).encode()]


TARGETS: dict[str, Target] = {
    "xyz": Target(_molecules, _xyz, ".xyz"),
    "tns": Target(lambda: [b"# comment\n1 2 3 1.5\n2 1 4 -2e3\n"], _tns, ".tns"),
    "program": Target(_expressions, _program),
    "einsum": Target(lambda: [b"ij,jk,kl->il", b"ij,ij,jk->ik"], _einsum),
    "profile": Target(_profiles, _profile, ".json"),
    "record": Target(_records, _record, ".json"),
    "result": Target(_results, _result, ".json"),
    "mace": Target(_descriptions, _description, ".npz"),
    "qcschema": Target(_schemas, _schema, ".json"),
}
