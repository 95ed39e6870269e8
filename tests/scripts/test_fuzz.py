"""Damaged files and texts are read or refused with one of trnqc's errors; scripts.fuzz looks for longer."""

import random
import warnings

import pytest

from scripts.fuzz.__main__ import outcome
from scripts.fuzz.mutations import mutated
from scripts.fuzz.targets import TARGETS, Target
from trnqc.errors import InputError

# Inputs of each target; those of QCSchema run a job.
INPUTS = {"qcschema": 5}


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_input_is_read_or_refused(name, tmp_path):
    if name == "qcschema":
        pytest.importorskip("qcelemental")
    target, rng = TARGETS[name], random.Random(f"test {name}")
    seeds = target.seeds()
    path = tmp_path / f"input{target.suffix}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {outcome(target, mutated(rng.choice(seeds), rng), path) for _ in range(INPUTS.get(name, 100))}
    assert found <= {"read", "refused"}


@pytest.mark.parametrize("name", sorted(set(TARGETS) - {"mace"}))
def test_seeds_are_valid(name, tmp_path):
    if name == "qcschema":
        pytest.importorskip("qcelemental")
    target = TARGETS[name]
    assert [outcome(target, seed, tmp_path / f"input{target.suffix}") for seed in target.seeds()].count("read") >= 1


def test_other_exceptions_are_findings(tmp_path):
    def crash(path):
        raise KeyError(path)

    def refuse(path):
        raise InputError("no")

    kinds = [outcome(Target(list, read), b"", tmp_path / "input") for read in (crash, refuse)]
    assert kinds[0].startswith("KeyError at test_fuzz.py:")
    assert kinds[1] == "refused"
