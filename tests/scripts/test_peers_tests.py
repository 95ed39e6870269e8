"""The script that runs peers' tests, on an invented peer: `json` of the standard library with tests of its own."""

from __future__ import annotations

import json
import subprocess
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.peers import __main__ as peers_tests
from scripts.peers import report
from scripts.peers.peer import THEIRS, Exclusion, Peer
from scripts.peers.run import Limits, run
from scripts.peers.trees import cache_folder, files_of, tree_of
from trnqc.errors import InputError, StorageError

TESTS = """
    import json
    import os
    import pathlib

    DATA = pathlib.Path(__file__).with_name("data.json")

    def test_kept(one):
        assert json.loads(DATA.read_text()) == [one]

    def test_lost():
        assert json.loads("1") == 1

    def test_excused():
        assert json.loads("2") == 2

    def test_of_the_way():
        assert json.loads("3") == 3

    def test_wrong_anyway():
        assert False

    def test_not_chosen():
        assert False
"""
# The plugin: what json.loads gives for "1", "2" and "3" is spoiled by the words of $SPOILED.
SWAP = """
    import json
    import os

    def pytest_configure():
        plain, spoiled = json.loads, os.environ["SPOILED"].split(",")
        json.loads = lambda text: -1 if text in spoiled else plain(text)
        os.environ["PEERS_SWAPPED"] = '{"loads": 1}'
"""


@pytest.fixture
def tree(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "tree" / "made_up" / "test"
    folder.mkdir(parents=True)
    (folder / "test_json.py").write_text(textwrap.dedent(TESTS))
    (folder / "data.json").write_text("[1]")
    (folder.parent / "conftest.py").write_text("import pytest\n\n@pytest.fixture\ndef one():\n    return 1\n")
    (tmp_path / "made_up_swap.py").write_text(textwrap.dedent(SWAP))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    # The made-up tests use no installed plugin, and importing them takes most of the time of a run.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return tmp_path / "tree"


PEER = Peer(
    name="made_up",
    repository="nowhere",
    tag="v{version}",
    files=("made_up/test/test_*.py",),
    swap="made_up_swap",
    ways={"ours": {"SPOILED": "1,2,3"}},
    controls={"ours": {"SPOILED": "3"}},
    exclusions=(Exclusion("test_excused$", "the second text is ours to read"),),
    arguments=("-k", "not not_chosen"),
    module="json",
    distribution="pytest",
)


def test_what_is_lost_and_what_is_excused(tree, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(peers_tests, "NAMES", ("made_up",))
    monkeypatch.setattr(peers_tests, "peers", lambda names: [PEER])
    out = tmp_path / "record.json"
    assert peers_tests.main(["--tree", f"made_up={tree}", "--out", str(out)]) == 1
    record = json.loads(out.read_text())["peers"]["made_up"]
    ((file, ways),) = record["files"].items()
    assert file == "made_up/test/test_json.py"
    assert {test: outcome["outcome"] for test, outcome in ways[THEIRS]["tests"].items()} == {
        "test_kept": "passed",
        "test_lost": "passed",
        "test_excused": "passed",
        "test_of_the_way": "passed",
        "test_wrong_anyway": "failed",
    }
    reasons = {loss["test"]: loss["excused"] for loss in record["lost"]}
    assert reasons.keys() == {"test_lost", "test_excused", "test_of_the_way"}
    assert reasons["test_lost"] == ""
    assert "second text" in reasons["test_excused"]
    assert "peer's own objects" in reasons["test_of_the_way"]
    assert "assert -1 == 1" in capsys.readouterr().out


def test_a_second_run_keeps_what_the_record_holds(tree, tmp_path, monkeypatch):
    monkeypatch.setattr(peers_tests, "NAMES", ("made_up",))
    monkeypatch.setattr(peers_tests, "peers", lambda names: [PEER])
    words = ["--tree", f"made_up={tree}", "--out", str(tmp_path / "record.json"), "--ways"]
    assert peers_tests.main([*words, THEIRS]) == 0
    assert peers_tests.main([*words, "ours"]) == 1
    (ways,) = json.loads((tmp_path / "record.json").read_text())["peers"]["made_up"]["files"].values()
    assert set(ways) == {THEIRS, "ours"}


@pytest.mark.parametrize(
    "words, match", [(["--ways", "abacus"], "theirs, ours"), (["--files", "abacus"], "no test file")]
)
def test_what_is_not_there_is_named(tree, tmp_path, monkeypatch, words, match):
    monkeypatch.setattr(peers_tests, "NAMES", ("made_up",))
    monkeypatch.setattr(peers_tests, "peers", lambda names: [PEER])
    with pytest.raises(InputError, match=match):
        peers_tests.main(["--tree", f"made_up={tree}", "--out", str(tmp_path / "record.json"), *words])


def test_runs_that_say_nothing_fail_the_gate():
    passed = {"tests": {"test": {"outcome": "passed", "seconds": 0}}, "exit": 0}
    assert report.empty({"file": {THEIRS: passed, "ours": passed}}) == ["file (ours): nothing of ours took part"]
    ended = {"tests": {}, "exit": -1}
    (words,) = report.empty({"file": {THEIRS: ended}})
    assert "time limit" in words
    (loss,) = report.losses(PEER, {"file": {THEIRS: passed, "ours": ended}})
    assert loss.outcome == "not reached"


def test_a_run_that_breaks_off_keeps_what_it_had(tree):
    file = tree / "made_up/test/test_json.py"
    file.write_text(file.read_text() + "\ndef test_breaking_off():\n    os._exit(9)\n")
    result = run(PEER, tree, file.relative_to(tree), THEIRS, Limits())
    assert result["exit"] == 9
    assert result["tests"]["test_kept"]["outcome"] == "passed"


def test_a_run_is_ended_at_its_limit(tree):
    assert run(PEER, tree, Path("made_up/test/test_json.py"), THEIRS, Limits(seconds=0.1))["exit"] == -1


def test_trees(tree, tmp_path, monkeypatch):
    assert tree_of(PEER, tree) == tree
    with pytest.raises(InputError, match="folder"):
        tree_of(PEER, tree / "nowhere")
    with pytest.raises(InputError, match="test_other"):
        files_of(Peer("json", "", "", ("test_other.py",), "", {}, distribution="pytest"), tree)
    monkeypatch.setenv("TRNQC_PEERS_DIR", str(tmp_path / "cache"))
    assert cache_folder() == tmp_path / "cache"
    with pytest.raises(StorageError, match="--tree made_up=DIR"):
        tree_of(PEER)
    assert not list((tmp_path / "cache").iterdir())
    with pytest.raises(InputError, match="NAME=DIR"):
        peers_tests.source_trees(["abacus=/tmp"])


def test_a_clone_is_made_once_at_the_tag_of_the_installed_version(tree, tmp_path, monkeypatch):
    git = ["git", "-C", str(tree), "-c", "user.name=Nobody", "-c", "user.email=nobody@localhost"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"], ["tag", f"v{PEER.version}"]):
        subprocess.run([*git, *words], check=True)
    (tree / "made_up" / "later.txt").write_text("not of the release")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "second"], check=True)
    monkeypatch.setenv("TRNQC_PEERS_DIR", str(tmp_path / "cache"))
    clone = tree_of(replace(PEER, repository=f"file://{tree}"))
    assert clone == tmp_path / "cache" / f"made_up-{PEER.version}"
    assert (clone / "made_up/test/test_json.py").exists()
    assert not (clone / "made_up/later.txt").exists()
    assert tree_of(PEER) == clone


def test_pyscf_names_its_files_and_swaps_them():
    from scripts.peers.pyscf import PEER as PYSCF

    assert "pyscf/scf/test/test_rhf.py" in PYSCF.files
    assert {THEIRS, *PYSCF.ways} >= {"memory", "direct"}
    for exclusion in PYSCF.exclusions:
        assert exclusion.reason
