"""For each construct that the parser of NKI 0.6 refuses: the smallest kernel with it, and one within the language."""

import inspect

import pytest

from tests.sim import lint_parser_cases as cases
from trnqc.sim.lint.lint import lint

REFUSED = {
    "loop_target": "a loop has one simple variable, not (a, b)",
    "loop_attribute": "a loop has one simple variable, not mem.turn",
    "for_else": "else of a loop is not in the language",
    "while_else": "else of a loop is not in the language",
    "with_names": "with nl.no_reorder() as order is not in the language; only with no_reorder()",
    "inner_function": "inner function double is not only the body of a device loop beside it",
    "passed_on": "inner function body is not only the body of a device loop beside it",
    "called_too": "inner function body is not only the body of a device loop beside it",
    "inner_class": "classes stand outside of kernels",
    "base_class": "class Wide derives from Sizes",
    "method_of_a_class": "comprehensions are not in the language",
    "lambda_function": "lambda is not in the language",
    "list_comprehension": "comprehensions are not in the language",
    "dict_comprehension": "comprehensions are not in the language",
    "try_statement": "try is not in the language",
    "raise_statement": "raise is not in the language",
    "match_statement": "match is not in the language",
    "del_statement": "del is not in the language",
    "import_statement": "imports stand outside of kernels",
    "global_statement": "no global",
    "nonlocal_statement": "nonlocal is not in the language",
    "walrus": ":= is not in the language",
    "star_argument": "star-unpacking is not in the language",
    "star_target": "star-unpacking is not in the language",
    "star_keywords": "** in a call is not in the language",
    "star_signature": "*sizes in a signature is not in the language",
    "merged_dictionaries": "** in a dictionary is not in the language",
    "format_specification": "format specifications of f-strings are not in the language",
    "element_in_a_tuple": "elements and attributes are assigned to one by one",
    "attribute_in_a_tuple": "elements and attributes are assigned to one by one",
    "several_targets": "elements and attributes are assigned to one by one",
    "other_builtin": "sum is not in the language",
    "loose_range": "`range(3)`: a range stands only in the head of a for loop",
    "min_of_three": "min takes one sequence or two numbers",
    "max_of_three": "max takes one sequence or two numbers",
    "max_with_default": "max takes one sequence or two numbers",
    "list_method": "method insert of sizes is not in the language",
    "list_sort": "method sort of mem.sizes is not in the language",
    "dict_method": "method update of found is not in the language",
    "string_method": "method upper of 'name' is not in the language",
    "maths": "math.log: of math, the language has ceil, floor, gcd, log10, log2, pow, sqrt",
    "matrix_product": "@ is not in the language",
    "dict_key": "keys of dictionaries are strings, not 1",
    "decorator": "decorator functools.cache is not in the language",
    "chained_in": "`in` inside a chain of comparisons",
    "large_integer": "9223372036854775808 is no 64-bit integer",
    "another_file": "a loop has one simple variable, not (a, b)",
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name):
    findings = lint(getattr(cases, name), "0.6")
    assert any(REFUSED[name] in f.message for f in findings), [str(f) for f in findings]
    assert len({f.message for f in findings}) == 1, [str(f) for f in findings]


@pytest.mark.parametrize("name", REFUSED)
def test_accepts_the_same_within_the_language(name):
    assert lint(getattr(cases, f"{name}_ok")) == ()


@pytest.mark.parametrize("name", sorted(set(REFUSED) - {"matrix_product"}))
def test_is_no_rule_of_the_tracer(name):
    assert lint(getattr(cases, name), "0.7") == ()


def test_a_helper_in_another_file_is_named_with_its_file():
    (finding,) = lint(cases.another_file)
    assert finding.file.endswith("lint_parser_helpers.py") and finding.function == "outside_the_language"


def test_every_case_is_expected():
    functions = {n for n, f in inspect.getmembers(cases, inspect.isfunction) if f.__module__ == cases.__name__}
    public = {name for name in functions if not name.startswith("_")}
    assert public == set(REFUSED) | {f"{name}_ok" for name in REFUSED}
