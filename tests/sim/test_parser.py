"""Kernels that are interpreted as the parser of NKI 0.6 does: what it refuses, and what differs from Python."""

# ruff: noqa: F632

from __future__ import annotations

import inspect

import numpy as np
import pytest

from tests.sim import lint_parser_cases, parser_cases
from tests.sim.running import run
from tests.sim.test_lint_parser import REFUSED as BY_FORM
from trnqc.errors import SimulationError
from trnqc.sim import RuleWarning, jit
from trnqc.sim.lint.lint import lint
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl
from trnqc.sim.parser.interpreter import interpreted

BY_VALUE = {
    "numpy_function": "np.prod is of numpy, which the language lacks; use nl and nisa",
    "numpy_dtype": "np.float32 is of numpy, which the language lacks; use nl.float32",
    "host_object": "_POOL is a value of type object, which is not in the language",
    "host_set": "_ALLOWED is a value of type set",
    "host_integer": "_LIMIT = 9223372036854775808 is no 64-bit integer",
    "tensor_operator": "`tile + tile`: no Python operators on tensors",
    "tensor_comparison": "`tile == x`: no Python operators on tensors",
    "tensor_assignment": "tensors cannot be assigned to",
    "truth_of_a_slice": "has no truth value",
    "missing_field": "Sizes: missing a required argument: 'rows'",
    "truth_of_a_register": "a register has no truth value",
    "register_operator": "registers have no operators",
    "index_beyond": "exceed dimension size of 3",
    "list_as_index": "indices of a tensor are integers and slices",
    "break_in_a_device_loop": "break in a device loop is not in the language",
    "device_loop_in_order": "not allowed inside nl.no_reorder()",
    "offset_into_a_view": "none that is indexed already",
    "same_name": "names of tensors are unique",
    "unknown_keyword": "mask",
    "assertion_message": "the message of an assertion is a string",
    "overflow": "9223372036854775808 is no 64-bit integer",
    "negative_power": "an integer has no negative power",
    "percent_format": "have no operator Mod",
    "several_classes": "isinstance takes one class",
    "property_of_an_object": "decorator property is not in the language",
    "keyword_dictionary": "_options does not take an argument columns",
    "missing_argument": "_options gets no value of rows",
    "loop_over_a_dictionary": "loops run over ranges, lists and tuples",
    "length_of_a_string": "len takes a list, a tuple or a dictionary",
    "unknown_name": "nl.no_such_name does not exist",
    "too_few_values": "3 values are expected, and there are 2",
}
CASES = [(lint_parser_cases, name, text) for name, text in BY_FORM.items()]
CASES += [(parser_cases, name, text) for name, text in BY_VALUE.items()]


class Memory(nl.NKIObject):
    """Something that a kernel may change."""

    def __init__(self):
        self.turn, self.rows, self.sizes = 0, 0, [1]


def interpret(kernel):
    """What a function returns if it is interpreted; its arguments are chosen by name."""
    results = []

    def body(x, y):
        known = {"x": x, "y": y, "mem": Memory(), "sums": [0, 0], "sizes": (2, 3), "kinds": (nl.float32,)}
        known |= {"pair": (1, (2, 3)), "options": {"dtype": nl.float32}}
        results.append(interpreted(kernel)(*(known[name] for name in inspect.signature(kernel).parameters)))

    run(body, np.ones((3, 4), np.float32), np.ones((3, 5), np.float32))
    return results[0]


@pytest.mark.parametrize(("module", "name", "text"), CASES, ids=[name for _, name, _ in CASES])
@pytest.mark.filterwarnings("ignore:nl.dynamic_range is removed:DeprecationWarning")
def test_refuses(module, name, text):
    with pytest.raises(SimulationError) as caught:
        interpret(getattr(module, name))
    shown = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert text in shown
    assert "cases.py:" in shown or "helpers.py:" in shown, "the error says where"


@pytest.mark.parametrize(("module", "name"), [case[:2] for case in CASES], ids=[name for _, name, _ in CASES])
@pytest.mark.filterwarnings("ignore:nl.dynamic_range is removed:DeprecationWarning")
def test_accepts_the_same_within_the_language(module, name):
    interpret(getattr(module, f"{name}_ok"))


def is_of_values(x):
    return [1, 2] is [1, 2], x.shape is not x.shape


def is_of_none(x):
    return x is None, x is not None


def test_is_means_equal_with_a_warning():
    with pytest.warns(RuleWarning, match="is and is not mean == and !="):
        assert interpret(is_of_values) == (True, False)


@pytest.mark.filterwarnings("error")
def test_is_none_is_silent():
    assert interpret(is_of_none) == (False, True)


def count(calls, value):
    calls.append(value)
    return value


def chain(x):
    calls = []
    return 3 < count(calls, 2) < count(calls, 1), calls


def test_all_parts_of_a_chain_are_evaluated():
    assert interpret(chain) == (False, [2, 1])
    assert chain(None) == (False, [2])


def grown(x):
    first = [1]
    second = first
    second += [2]
    return first, second


def test_augmented_assignments_make_new_lists():
    assert interpret(grown) == ([1], [1, 2])
    assert grown(None) == ([1, 2], [1, 2])


SHARED = [1]


def changes_a_constant(x):
    SHARED.append(2)
    return SHARED


def test_constants_of_the_host_stay_as_they_are():
    assert interpret(changes_a_constant) == [1, 2]
    assert SHARED == [1]


def kinds(x):
    return isinstance(True, int), type(None), isinstance(3, int), min(2, 1.0), max((1, 3))


def test_types_are_exact():
    assert interpret(kinds) == (False, None, True, 1.0, 3)


def keyword_only(x, *, rows=3, **options):
    return rows


def test_keyword_only_arguments_are_ordinary():
    assert interpret(lambda_free) == 4


def lambda_free(x):
    return keyword_only(x, rows=4)


def fails(x):
    assert x.shape[0] == 4, f"{x.shape[0]} rows, not {4!r}"


def test_assertions_are_evaluated_while_the_kernel_is_compiled():
    with pytest.raises(AssertionError, match=r"^3 rows, not 4$"):
        interpret(fails)


def outside_after(x):
    tile = nl.load(x)
    nisa.tensor_copy(dst=tile, src=x)


def test_errors_of_instructions_name_the_line():
    with pytest.raises(SimulationError) as caught:
        interpret(outside_after)
    line = inspect.getsourcelines(outside_after)[1] + 2
    assert caught.value.__notes__ == [f"in outside_after, {__file__}:{line}"]


def not_taken(x):
    if x.shape[0] > 100:
        lint_parser_cases.try_statement(x)


def test_what_a_kernel_names_is_read_even_if_it_is_never_called():
    with pytest.raises(SimulationError, match="try is not in the language"):
        interpret(not_taken)


def test_a_kernel_is_defined_by_def():
    with pytest.raises(SimulationError, match="lambda is not in the language"):
        interpret(lambda x: x)


# The rules whose test needs values; the lint reads only the source.
SEEN_BY_LINT = {"numpy_function", "numpy_dtype", "tensor_operator", "tensor_comparison", "tensor_assignment"}
SEEN_BY_LINT |= {"property_of_an_object", "unknown_name"}


@pytest.mark.parametrize("name", BY_VALUE)
def test_the_lint_sees_what_the_source_shows(name):
    assert bool(lint(getattr(parser_cases, name), "0.6")) is (name in SEEN_BY_LINT)


@pytest.mark.parametrize("name", BY_VALUE)
def test_the_lint_accepts_what_runs(name):
    assert lint(getattr(parser_cases, f"{name}_ok"), "0.6") == ()


def test_every_case_is_expected():
    functions = {n for n, f in inspect.getmembers(parser_cases, inspect.isfunction) if f.__module__.endswith("_cases")}
    public = {name for name in functions if not name.startswith("_")}
    assert public == set(BY_VALUE) | {f"{name}_ok" for name in BY_VALUE}


def uses_a_context_of_nl(x):
    with nl.no_reorder():
        return inlined(3), nl.ds(0, 3)


@jit
def inlined(n):
    return 2 * n


def test_kernels_that_a_kernel_calls_are_inlined():
    assert interpret(uses_a_context_of_nl) == (6, nl.ds(0, 3))
