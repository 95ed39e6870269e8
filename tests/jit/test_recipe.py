"""Recipes: the key contains all that a program depends on, and wrong declarations are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.gen.programs import gemm, polynomial
from trnqc.errors import ProgramError
from trnqc.jit import Parameter, Recipe, Signature, library
from trnqc.jit.compile import Compilation, c_library, c_object


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_functions_at_hand(directory):
    recipe, target = Recipe.of(polynomial(), gemm(), name="two"), c_library(4, ("-O1",))
    assert not Compilation(recipe, target).is_stored
    compiled = library(recipe, 4, ("-O1",))
    assert Compilation(recipe, target).is_stored and compiled is library(
        Recipe.of(polynomial(), gemm(), name="two"), 4, ("-O1",)
    )
    x, y, z = np.ones((2, 1, 4)), np.zeros((2, 1, 4)), np.zeros((2, 1, 4))
    compiled.polynomial(n=1, x=x, y=y, z=z, groups_begin=1, groups_end=2)
    np.testing.assert_array_equal(y[:, 0], [[0.0] * 4, [2.75] * 4])
    assert compiled.gemm.signature.names == ("m", "n", "q", "a", "b", "c")


def test_the_key_tells_what_matters():
    by_text = Recipe.of(polynomial())
    by_name = replace(by_text, module="trnqc.gen.values")
    recipes = (by_text, Recipe.of(polynomial((1.0, 2.0))), by_name, replace(by_name, variant="fast"))
    targets = (c_library(4), c_library(8), c_library(4, ("-O1",)), c_object(4))
    entries = {Compilation(recipe, target).entry for recipe in recipes for target in targets}
    assert len(entries) == len(recipes) * len(targets)
    assert by_name == replace(by_name, make=lambda: ()) != replace(by_name, variant="fast")


def test_the_options_of_a_recipe_are_those_of_its_compiler():
    text = "double number(void) { return NUMBER; }\n"
    signature = Signature("number", returns="f64")
    for number in (2, 3):
        recipe = Recipe("number", (signature,), text=text, lanes=1, flags=(f"-DNUMBER={number}",))
        assert library(recipe).number() == number


@pytest.mark.parametrize(
    "change",
    [
        lambda p: p[:-1],
        lambda p: (p[1], p[0], *p[2:]),
        lambda p: (replace(p[0], dtype="i32"), *p[1:]),
        lambda p: (*p[:2], replace(p[2], written=False), *p[3:]),
        lambda p: (*p, Parameter("more", "i64")),
    ],
    ids=["missing", "order", "type", "written", "added"],
)
def test_a_wrong_declaration_is_an_error(change):
    recipe = Recipe.of(polynomial())
    (right,) = recipe.signatures
    assert [p.written for p in right.parameters] == [False, False, True, True, False, False]
    wrong = replace(recipe, signatures=(Signature(right.name, change(right.parameters)),))
    with pytest.raises(ProgramError, match="polynomial is declared as"):
        _ = Compilation(wrong, c_library(1)).file
    with pytest.raises(ProgramError, match="absent is declared as"):
        _ = Compilation(replace(recipe, signatures=(Signature("absent"),)), c_library(1)).file


def test_more_may_be_declared_as_written():
    recipe = Recipe.of(polynomial())
    (right,) = recipe.signatures
    all_written = tuple(replace(p, written=p.array) for p in right.parameters)
    _ = Compilation(replace(recipe, signatures=(Signature(right.name, all_written),)), c_library(1)).file


def test_a_type_must_be_known():
    with pytest.raises(ValueError, match=r"x: a type is one of .*'float64'"):
        Parameter("x", "float64")
