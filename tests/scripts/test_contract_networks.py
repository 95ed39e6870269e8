"""Networks that the benchmark of contractions reads from files."""

from __future__ import annotations

import json

import pytest

from scripts.bench_contract import BENCHMARK
from scripts.contract.slicing import read, slicing
from trnqc.errors import InputError

CHAIN = {"inputs": [["a", "b"], ["b", "c"]], "output": ["a", "c"], "size_dict": {"a": 2, "b": 3, "c": 4}}


def test_a_network_is_read(tmp_path):
    file = tmp_path / "chain.json"
    file.write_text(json.dumps(CHAIN))
    network = read(file)
    assert network.shapes == [(2, 3), (3, 4)]
    assert network.plan().multiply_adds == 2 * 3 * 4
    assert [array.shape for array in network.arrays()] == network.shapes


@pytest.mark.parametrize("found", [{"inputs": []}, [1, 2]], ids=["fields", "list"])
def test_other_files_are_refused(tmp_path, found):
    file = tmp_path / "other.json"
    file.write_text(json.dumps(found))
    with pytest.raises(InputError, match=r"inputs, output and size_dict; found (inputs|list) in .*other.json"):
        read(file)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="found none in"):
        slicing(tmp_path)


def test_the_command_takes_a_folder(tmp_path):
    asked = BENCHMARK.parser().parse_args(["--sections", "slicing", "--networks", str(tmp_path)])
    assert asked.networks == tmp_path
