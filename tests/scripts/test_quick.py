"""What `./run test` leaves out: long tests, and combinations of parameters beyond pairs."""

from __future__ import annotations

from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as some

from scripts import ROOT
from scripts.changed.long import LIST, long_tests
from tests.pairwise import covering

grids = some.lists(some.integers(1, 5), min_size=3, max_size=4)


@given(grids)
def test_every_two_values_meet_in_fewer_rows(sizes):
    rows = [tuple(map(str, row)) for row in product(*map(range, sizes))]
    chosen = [rows[n] for n in covering(rows)]
    for a, b in combinations(range(len(sizes)), 2):
        assert {(row[a], row[b]) for row in chosen} == {(row[a], row[b]) for row in rows}
    assert len(chosen) == len(set(chosen)) <= len(rows)


def test_a_large_grid_becomes_small():
    rows = [tuple(map(str, row)) for row in product(range(5), range(5), range(4))]
    assert 25 <= len(covering(rows)) <= 30


def test_set_up_and_call_count_and_the_rest_does_not():
    report = ["1.00s setup    tests/a.py::test_x", "0.20s call     tests/a.py::test_x[1 b]", "== slowest durations =="]
    report += ["0.30s call     tests/a.py::test_x", "9.00s teardown tests/a.py::test_y"]
    assert long_tests(report, 1.2) == ["tests/a.py::test_x"]
    assert long_tests(report, 0.1) == ["tests/a.py::test_x", "tests/a.py::test_x[1 b]"]


def test_the_list_names_files_that_exist():
    files = {line.partition("::")[0] for line in LIST.read_text(encoding="utf-8").splitlines()}
    assert files and not [name for name in files if not (ROOT / name).is_file()]
