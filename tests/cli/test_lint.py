"""`trnqc lint` reports on the kernels of a file."""

import json

SOURCE = """
import nki
import nki.language as nl

@nki.jit
def copied(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in {loop}(x.shape[0]):
        nl.store(out[i], nl.load(x[i]))
    return out
"""


def test_findings_go_to_the_table_and_to_json(trnqc, tmp_path):
    file, facts = tmp_path / "kernels.py", tmp_path / "findings.json"
    file.write_text(SOURCE.format(loop="nl.dynamic_range"))
    status, out, _ = trnqc("lint", file, "--json", facts)
    assert status == 1
    assert "kernels.py:8" in out and "1 kernels, 1 findings" in out
    (finding,) = json.loads(facts.read_text())["findings"]
    assert finding["versions"] == ["0.7"] and finding["effect"] == "rejected" and finding["line"] == 8
    assert trnqc("lint", file, "--nki", "0.6")[0] == 0


def test_what_is_only_deprecated_is_no_failure(trnqc, tmp_path):
    file = tmp_path / "kernels.py"
    file.write_text(SOURCE.format(loop="nl.affine_range"))
    status, out, _ = trnqc("lint", file)
    assert status == 0 and "deprecated" in out


def test_files_that_cannot_be_read(trnqc, tmp_path):
    file = tmp_path / "kernels.py"
    assert "is not a file" in trnqc("lint", file)[2]
    file.write_text("import a_module_that_does_not_exist")
    assert "cannot be imported: ModuleNotFoundError" in trnqc("lint", file)[2]
    file.write_text("x = 1")
    assert "has no kernel under @nki.jit" in trnqc("lint", file)[2]


OLD = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

raise SystemExit("this file is only read")

@nki.jit
def copied(x):
    tile = nl.load(x, mask=nl.arange(128)[:, None] < 100)
    return tile
"""


def test_files_of_the_old_namespace_are_read_and_not_imported(trnqc, tmp_path):
    file, facts = tmp_path / "kernels.py", tmp_path / "changes.json"
    file.write_text(OLD)
    status, out, _ = trnqc("lint", file, "--json", facts)
    assert status == 1
    assert "kernels.py: 5 changes" in out and "import nki.language as nl" in out
    changes = json.loads(facts.read_text())["migration"]
    assert [change["line"] for change in changes] == [2, 3, 9, 9, 9]
    assert {"file", "line", "old", "new"} == set(changes[0])
