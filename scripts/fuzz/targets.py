"""Readers of files and texts that strangers write, each with valid input to begin with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts import ROOT
from trnqc import __version__
from trnqc.errors import InputError
from trnqc.host.files import record_line


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


def _pdaggerq(path: Path) -> Any:
    from trnqc.expression.imports import pdaggerq

    return pdaggerq(_object(path))


def _wickd(path: Path) -> Any:
    from trnqc.expression.imports import wickd

    return wickd(path.read_text(encoding="utf-8", errors="replace").splitlines())


def _object(path: Path) -> Any:
    """An object of JSON whose values are lists of lists of words, as our readers of objects are told to expect."""
    value = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    lists = isinstance(value, dict) and all(isinstance(terms, list) for terms in value.values())
    if not lists or not all(isinstance(term, list) for terms in value.values() for term in terms):
        raise InputError("another type of object")
    return {key: [[str(word) for word in term] for term in terms] for key, terms in value.items()}


# Equations of the doubles of coupled cluster, as both programs write them.
PDAGGERQ = {
    "energy": [["+1.000", "f(i,a)", "t1(a,i)"], ["+0.250", "<i,j||b,a>", "t2(b,a,i,j)"]],
    "r2[e,f,m,n]": [["-0.5", "P(m,n)", "<j,i||a,b>", "t2(a,b,n,i)", "t2(e,f,m,j)"]],
}
WICKD = (
    b"R^{}_{} += 1/2 F^{v0}_{o0} T^{o0}_{v0}\n"
    b"R^{o0,o1}_{v0,v1} += -1/2 T^{o0,o1}_{v0,v2} F^{v2}_{v1}\n"
    b"R^{o0,o1}_{v0,v1} += 1/8 T^{o2,o3}_{v0,v1} V^{o0,o1}_{o2,o3}\n"
)


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


def _checkpoint(path: Path) -> Any:
    """The file, without its first line, is the description or the records of a checkpoint, as that line says."""
    from trnqc.host.files import Records
    from trnqc.mp2.checkpoint import Checkpoint

    kept = path.parent / "kept"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir()
    kind, _, data = path.read_bytes().partition(b"\n")
    (kept / "job.json").write_bytes(JOB)
    (kept / "records.jsonl").write_bytes(RECORDS)
    (kept / ("records.jsonl" if kind == b"records" else "job.json")).write_bytes(data)
    with Checkpoint(kept, {"molecule": "H2O"}) as store:
        store.decide("metric", lambda: 1)
        store.recorded("row")
    return Records(kept / "records.jsonl").entries


JOB = json.dumps({"format": 1, "trnqc": __version__, "molecule": "H2O"}).encode()
RECORDS = record_line({"metric": 3, "of": 0}) + record_line({"row": [0, 1], "of": 7})


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
    "pdaggerq": Target(lambda: [json.dumps(PDAGGERQ).encode()], _pdaggerq, ".json"),
    "wickd": Target(lambda: [WICKD], _wickd),
    "checkpoint": Target(lambda: [b"job\n" + JOB, b"records\n" + RECORDS], _checkpoint),
    "einsum": Target(lambda: [b"ij,jk,kl->il", b"ij,ij,jk->ik"], _einsum),
    "profile": Target(_profiles, _profile, ".json"),
    "record": Target(_records, _record, ".json"),
    "result": Target(_results, _result, ".json"),
    "mace": Target(_descriptions, _description, ".npz"),
    "qcschema": Target(_schemas, _schema, ".json"),
}
