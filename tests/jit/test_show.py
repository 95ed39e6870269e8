"""TRNQC_SHOW writes a stage of the kernels that are asked for."""

from __future__ import annotations

import re

import pytest

from trnqc import jit
from trnqc.errors import InputError
from trnqc.gen import Array, Var, const
from trnqc.gen.build import Builder
from trnqc.jit import Recipe, library
from trnqc.jit.show import with_live_counts


def dot(name):
    """The sum of the products of two arrays."""
    n, x, y, out = Var("n", "i64"), Array("x", "f64"), Array("y", "f64"), Array("out", "f64")
    b = Builder()
    total = b.declare("total", const(0.0))
    with b.loop("i", n) as i:
        b.assign(total, total + x[i] * y[i])
    b.store(out[0], total)
    return b.function(name, (n, x, y, out))


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ("program", r"total_1 := total_1 \+ x\[i_1\] \* y\[i_1\]"),
        ("schedule", r" 1  +total_1 := total_1"),
        ("text", r"void shown_text\("),
        ("asm", "shown_asm"),
    ],
)
@pytest.mark.skipif(bool(jit.lacks_compiler()), reason="no compiler")
def test_a_stage_is_written_once(monkeypatch, capfd, stage, words):
    name = f"shown_{stage}"
    monkeypatch.setenv("TRNQC_SHOW", f"{stage}:shown_*")
    for _ in range(2):
        library(Recipe.of(dot(name)))
    library(Recipe.of(dot(f"other_{stage}")))
    written = capfd.readouterr().err
    assert written.count(f"# {stage} of ") == 1
    assert re.search(words, written)


@pytest.mark.parametrize("asked", ["text", "text:", "binary:dot", ":dot"])
def test_other_values_are_refused(monkeypatch, asked):
    monkeypatch.setenv("TRNQC_SHOW", asked)
    with pytest.raises(InputError, match=r"STAGE:NAME with a stage of program, schedule, text, asm"):
        library(Recipe.of(dot(f"refused_{len(asked)}")))


def test_variables_live_to_the_end_of_a_loop_that_reads_them():
    counts = [int(line.split()[0]) for line in with_live_counts(dot("counted")).splitlines()]
    # The header; total is made, read in the loop and stored behind it.
    assert counts[0] == 0
    assert set(counts[1:]) == {1}
