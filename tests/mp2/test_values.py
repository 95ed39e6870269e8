"""The settings of a job are one value, which only public functions take apart."""

from __future__ import annotations

import ast
from pathlib import Path

ROOM = Path(__file__).resolve().parents[2] / "trnqc" / "mp2"
# What `Execution` holds under names that requests use.
SWITCHES = {"backend", "precision", "fused", "max_memory", "max_bytes", "schedule"}
DOORS = {f"{method}.__init__" for method in ("DFMP2", "DH", "RingMethod")}
DOORS |= {"choose", "execution_of", "method_of", "mp2_energy", "run"}
# Judges energies by the precision that they have, and changes nothing about how they are computed.
JUDGES = {"require_promise"}


def switches() -> dict[str, set[str]]:
    """Functions of the room that take one of the switches, with those that they take."""
    takers = {}
    for path in ROOM.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        owners = {id(f): f"{c.name}." for c in ast.walk(tree) if isinstance(c, ast.ClassDef) for f in c.body}
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                names = {a.arg for a in (*node.args.args, *node.args.kwonlyargs)} & SWITCHES
                if names:
                    takers[owners.get(id(node), "") + node.name] = names
    return takers


def test_inside_the_room_the_execution_is_passed_whole():
    assert set(switches()) <= DOORS | JUDGES


def test_the_reader_sees_the_doors():
    assert switches()["mp2_energy"] == {"backend", "precision", "fused", "max_memory"}
