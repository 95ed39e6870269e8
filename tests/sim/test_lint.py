"""The linter finds each departure from the language, at its line, and nothing in a clean kernel."""

import inspect

import pytest

from tests.sim import lint_cases as cases
from trnqc.errors import SimulationError
from trnqc.sim import jit
from trnqc.sim.lint.lint import lint

EXPECTED = {
    "identity": ("x.shape is x.shape", "`is` means == in NKI 0.6 and identity in 0.7"),
    "list_argument": ("def list_argument", "kernel argument x is a list; use a tuple"),
    "list_default": ("def list_default", "kernel argument default is a list"),
    "tries": ("try:", "try is not in the language"),
    "lambdas": ("lambda", "lambda is not in the language"),
    "generates": ("yield", "generators are not in the language"),
    "generator_expression": ("for n in", "generators are not in the language"),
    "tensor_comprehension": ("for i in range(3)", "comprehensions are not in the language"),
    "numpy_call": ("np.prod", "np.prod: calls into numpy are not in the language"),
    "library_call": ("os.cpu_count", "os.cpu_count: calls into os are not in the language"),
    "product_of_tensors": ("a * b", "`a * b`: no Python operators on tensors"),
    "in_place": ("a += 1", "no Python operators on tensors"),
    "negated": ("-tile", "no Python operators on tensors"),
    "of_an_argument": ("x + 1", "no Python operators on tensors"),
    "assigned": ("a[0, 0] = 1", "tensors are not assigned to"),
    "unknown_function": ("nl.arange", "nl.arange does not exist"),
    "unknown_instruction": ("dynamic_src", "nisa.tensor_copy_dynamic_src does not exist"),
    "nested_loops": ("nl.fori_loop(0, 3, outer)", "nested device loops do not compile"),
    "through_a_helper": (None, "star-unpacking is not in the language"),
    "enumerates": ("enumerate", "loops run over ranges, lists and tuples, not over enumerate(x.shape)"),
    "old_loop": ("dynamic_range", "nl.dynamic_range is gone from NKI 0.7"),
    "bare_old_loop": ("in dynamic_range", "dynamic_range is gone from NKI 0.7"),
    "scalars": ("scalar_load", "nisa.scalar_load does not exist in NKI 0.6; use nisa.register_load"),
    "while_register": ("while register", "while loops over a register are gone from NKI 0.7"),
    "static_loop": ("affine_range", "nl.affine_range is deprecated since NKI 0.7"),
    "compared_objects": ("first == second", "compares instances of Config"),
    "raises": ("raise", "raise is not in the language"),
    "with_file": ("with open", "with open('f') is not in the language"),
    "decorated_helper": ("def inner", "helpers are plain functions, without decorators"),
    "plain_class": ("Plain()", "classes in kernels derive from nl.NKIObject"),
    "imports": ("import os", "imports stand outside of kernels"),
    "builtin": ("sorted", "sorted is not in the language"),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_finds(name):
    where, message = EXPECTED[name]
    findings = lint(getattr(cases, name))
    matching = [f for f in findings if message in f.message]
    assert matching, [str(f) for f in findings]
    with open(cases.__file__) as file:
        line = file.read().splitlines()[matching[0].line - 1]
    assert where is None or where in line


# Cases that NKI 0.7 rejects as well: rules of tensors, device loops and the interface, not of Python.
IN_BOTH = {
    *("product_of_tensors", "in_place", "negated", "of_an_argument", "assigned"),
    *("unknown_function", "unknown_instruction", "nested_loops"),
}
# Cases that concern NKI 0.7 and not 0.6.
ONLY_IN_07 = {"old_loop", "bare_old_loop", "while_register", "static_loop", "compared_objects"}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_version_has_its_own_rules(name):
    """0.7 runs the kernel as Python, so that most of the subset of 0.6 is no rule there."""
    _, message = EXPECTED[name]
    only_in_07 = name in ONLY_IN_07
    in_version = {v: any(message in f.message for f in lint(getattr(cases, name), v)) for v in ("0.6", "0.7")}
    assert in_version == {"0.6": not only_in_07, "0.7": name in IN_BOTH or only_in_07}


def test_effects():
    effects = {name: {f.effect for f in lint(getattr(cases, name))} for name in EXPECTED}
    assert effects.pop("static_loop") == {"deprecated"}
    assert effects.pop("compared_objects") == effects.pop("identity") == {"differs"}
    assert all(found == {"rejected"} for found in effects.values())


def test_a_version_that_does_not_exist():
    with pytest.raises(SimulationError, match=r"version of lint must be one of 0\.6, 0\.7, got '0\.5'"):
        lint(cases.clean, "0.5")


def test_every_case_is_expected_and_only_helpers_are_clean():
    functions = {n for n, f in inspect.getmembers(cases, inspect.isfunction) if f.__module__ == cases.__name__}
    assert functions == set(EXPECTED) | {"clean", "tile_of", "helper", *ACCEPTED}


# What the vendor's guide advises against and the parser accepts, and a class by the name of its module.
ACCEPTED = ("identity_of_none", "keyword_only", "no_keywords", "object_of_another_module")


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_the_parser_accepts_is_no_finding(name):
    assert lint(getattr(cases, name)) == ()


def test_a_clean_kernel_has_no_findings():
    assert lint(cases.clean) == ()
    assert lint(jit(cases.clean)) == ()


def test_lists_are_fine_in_helpers():
    """Only the kernel's own arguments must be tuples."""
    findings = lint(cases.through_a_helper)
    assert [f.function for f in findings] == ["helper"]
    assert str(findings[0]).startswith(cases.__file__)
