"""The vendor's caches, laid out as documented, are read, claimed, warmed and cleared without damage."""

import dataclasses
import itertools
import os
import stat
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from nki_kernels.descriptors import kernels
from nki_kernels.descriptors.descriptor import Infeasible
from trnqc.backends.neuron.neff import ledger
from trnqc.backends.neuron.neff.caches import CUSTOM_CALL, entries, option, redirected, vendor_caches
from trnqc.backends.neuron.neff.programs import neff_program
from trnqc.backends.neuron.neff.warming import warm
from trnqc.errors import CompilerError, InputError
from trnqc.jit.cache import key_of
from trnqc.sim.launch.launch import execute
from trnqc.sim.machine.targets import TARGETS
from trnqc.sim.timeline.record import Recorder
from trnqc.sim.timeline.timeline import _targeting
from trnqc.tuning.sources import kernel_hash

COMPILER = "neuronxcc-2.24.1234.0+abcdef12"
FLAG = "--cache_dir in NEURON_CC_FLAGS"
SHAPE = {"M": 256, "N": 512, "K": 384}
TILES = {"rows": 128, "cols": 512, "kchunk": 3, "batch": 1, "hold": 0, "drains": 4, "drainer": 0}


@pytest.fixture
def caches(tmp_path, monkeypatch):
    """Roots of both caches of this environment, and a cache directory of our own."""
    roots = {"xla": tmp_path / "xla", "native": tmp_path / "native"}
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(roots["xla"]))
    monkeypatch.setenv("TORCH_NEURONX_NEFF_CACHE_DIR", str(roots["native"]))
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path / "ours"))
    monkeypatch.delenv("NEURON_CC_FLAGS", raising=False)
    return roots


def put_xla(root, number, neff=b"NEFF", graph=CUSTOM_CALL, lock=False):
    folder = root / COMPILER / f"MODULE_{number}+d41d8cd9"
    folder.mkdir(parents=True, exist_ok=True)
    if graph is not None:
        (folder / "model.hlo_module.pb").write_bytes(b"\x00graph " + graph)
    if neff is not None:
        (folder / "model.neff").write_bytes(neff)
        (folder / "model.done").touch()
    if lock:
        (folder / "model.hlo_module.pb.lock").touch()
    return folder


def put_native(root, key, neff=b"NEFF"):
    path = root / key[:2] / key[2:4] / f"{key}.neff"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(neff)
    return path


@contextmanager
def watch(program):
    """Let the block write to private caches, as a compiler does, then claim what it wrote."""
    with tempfile.TemporaryDirectory() as place:
        seen = SimpleNamespace(environment=redirected(os.environ, Path(place)))
        yield seen
        seen.claimed = ledger.claim(program, Path(place))


def own_xla(seen, number, **what):
    """Write an entry where the compiler of `watch` writes, and return its place in the shared cache."""
    folder = put_xla(Path(seen.environment["NEURON_COMPILE_CACHE_URL"]), number, **what)
    return Path(os.environ["NEURON_COMPILE_CACHE_URL"]) / folder.parent.name / folder.name


def own_native(seen, key, neff=b"NEFF"):
    put_native(Path(seen.environment["TORCH_NEURONX_NEFF_CACHE_DIR"]), key, neff)
    return Path(os.environ["TORCH_NEURONX_NEFF_CACHE_DIR"]) / key[:2] / key[2:4] / f"{key}.neff"


def gemm_program(constants=TILES, **changed):
    values = {"kernel": "gemm", "shape": SHAPE, "precision": "fp32", "target": "trn2"}
    return dataclasses.replace(neff_program(**(values | changed)), constants=constants)


# -- where the caches are ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "environment, root, decided",
    [
        ({}, "/var/tmp/neuron-compile-cache", "the vendor's default"),
        ({"NEURON_COMPILE_CACHE_URL": "/a"}, "/a", "NEURON_COMPILE_CACHE_URL"),
        ({"NEURON_COMPILE_CACHE_URL": "file:///a"}, "/a", "NEURON_COMPILE_CACHE_URL"),
        ({"NEURON_COMPILE_CACHE_URL": "/a", "NEURON_CC_FLAGS": "-O2 --cache_dir=/b"}, "/b", FLAG),
        ({"NEURON_CC_FLAGS": "--cache_dir '/with space' --lnc 1"}, "/with space", FLAG),
    ],
)
def test_the_xla_cache_is_where_the_environment_says(environment, root, decided):
    cache = vendor_caches(environment)[0]
    assert (cache.kind, cache.root, cache.decided_by, cache.note) == ("xla", root, decided, "")


@pytest.mark.parametrize(
    "environment, note",
    [
        ({"NEURON_COMPILE_CACHE_URL": "s3://bucket/a"}, "remote: its entries are not listed"),
        ({"NEURON_CC_FLAGS": "--no_cache"}, "off: --no_cache in NEURON_CC_FLAGS"),
    ],
)
def test_caches_that_cannot_be_listed_say_so(environment, note):
    assert vendor_caches(environment)[0].note == note


@pytest.mark.parametrize(
    "flags, value, others",
    [
        ("-O1 --cache-dir /a --x='-a b' --cache_dir=/b --lnc 1", "/b", ["-O1", "--x=-a b", "--lnc", "1"]),
        ("--cache_directory /a", None, ["--cache_directory", "/a"]),
        ("--lnc 1 --cache_dir", "", ["--lnc", "1"]),
    ],
)
def test_an_option_is_taken_out_of_the_flags(flags, value, others):
    """The last one counts, in both spellings; other words stay in their order."""
    assert option(flags, "cache_dir") == (value, others)


def test_the_native_cache():
    assert vendor_caches({})[1].root == "/tmp/neff_cache"
    assert vendor_caches({"TORCH_NEURONX_NEFF_CACHE_DIR": "/c"})[1].decided_by == "TORCH_NEURONX_NEFF_CACHE_DIR"


# -- what is in them --------------------------------------------------------------------------------------------------


def test_entries_of_the_xla_layout(caches):
    put_xla(caches["xla"], 1)
    put_xla(caches["xla"], 2, neff=None)
    put_xla(caches["xla"], 3, lock=True)
    put_xla(caches["xla"], 4, graph=b"somebody's network")
    put_xla(caches["xla"], 5, graph=None)
    (caches["xla"] / "notes").mkdir()
    result = entries(vendor_caches()[0])
    assert [e.path.name.split("+")[0] for e in result] == [f"MODULE_{n}" for n in range(1, 6)]
    assert [e.state for e in result] == ["compiled", "unfinished", "locked", "compiled", "compiled"]
    assert [e.has_kernel for e in result] == [True, True, True, False, None]
    assert {e.compiler for e in result} == {"2.24.1234.0+abcdef12"}


def test_each_file_of_the_native_layout_is_an_entry(caches):
    put_native(caches["native"], "abcd01")
    put_native(caches["native"], "abcd02")
    caches["native"].joinpath("flat.neff").write_bytes(b"NEFF")
    result = entries(vendor_caches()[1])
    assert [e.path.name for e in result] == ["abcd01.neff", "abcd02.neff", "flat.neff"]
    assert {e.state for e in result} == {"compiled"}


def test_absent_and_remote_caches_are_empty(caches, monkeypatch):
    assert [entries(cache) for cache in vendor_caches()] == [[], []]
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", "s3://bucket")
    assert entries(vendor_caches()[0]) == []


# -- our key ----------------------------------------------------------------------------------------------------------


def test_equal_programs_have_equal_keys():
    assert gemm_program().key() == gemm_program().key() and len(gemm_program().key()) == 32


@pytest.mark.parametrize(
    "changed",
    [
        {"constants": TILES | {"rows": 256}},
        {"shape": SHAPE | {"K": 385}},
        {"precision": "bf16"},
        {"target": "trn1"},
    ],
)
def test_tiles_shape_precision_and_target_are_part_of_the_key(changed):
    assert gemm_program(**changed).key() != gemm_program().key()


@pytest.mark.parametrize("name, value", [("NEURON_CC_FLAGS", "-O1"), ("NEURON_LOGICAL_NC_CONFIG", "1")])
def test_flags_are_part_of_the_key(name, value, monkeypatch):
    before = gemm_program().key()
    monkeypatch.setenv(name, value)
    assert gemm_program().key() != before


def test_source_and_versions_are_part_of_the_key():
    one = gemm_program()
    assert dataclasses.replace(one, source="0" * 16).key() != one.key()
    assert dataclasses.replace(one, depends=one.depends | {"nki": "9.9"}).key() != one.key()


def test_without_tiles_the_ones_of_the_next_launch_are_taken(caches):
    from nki_kernels.descriptors import kernels

    assert neff_program("gemm", SHAPE, "fp32", "trn2").constants == kernels()["gemm"].default(SHAPE, "fp32")


# -- whose they are ---------------------------------------------------------------------------------------------------


def test_a_program_claims_what_its_compiler_writes(caches):
    put_xla(caches["xla"], 1)
    with watch(gemm_program()) as seen:
        own_xla(seen, 2)
        copy = own_xla(seen, 3, graph=b"a tensor copied to the device")
        own_xla(seen, 4, neff=None)
        own_native(seen, "abcd05")
    assert [path.name for path in seen.claimed] == ["MODULE_2+d41d8cd9", "abcd05.neff"]
    owners = ledger.owners()
    assert {path.name for path in owners} == {"MODULE_2+d41d8cd9", "abcd05.neff"}
    assert {owner.words() for owner in owners.values()} == {gemm_program().words()}
    assert (copy / "model.neff").exists()
    assert sorted(path.name for path in copy.parent.iterdir()) == [f"MODULE_{n}+d41d8cd9" for n in (1, 2, 3)]


def test_what_another_process_writes_meanwhile_is_not_claimed(caches):
    with watch(gemm_program()) as seen:
        own_native(seen, "abcd01")
        own_xla(seen, 1)
        theirs = [put_native(caches["native"], "abcd02"), put_xla(caches["xla"], 2)]
    assert {path.name for path in ledger.owners()} == {"abcd01.neff", "MODULE_1+d41d8cd9"}
    ledger.clear()
    assert all(path.exists() for path in theirs)


@pytest.mark.parametrize("neff_file", [b"theirs", None], ids=["compiled", "being compiled"])
def test_what_another_process_has_compiled_first_stays_theirs(caches, neff_file):
    with watch(gemm_program()) as seen:
        own_native(seen, "abcd01", b"ours")
        own_xla(seen, 1, neff=b"ours")
        native, xla = put_native(caches["native"], "abcd01", b"theirs"), put_xla(caches["xla"], 1, neff=neff_file)
    assert seen.claimed == [] and ledger.owners() == {} and ledger.clear() == []
    assert native.read_bytes() == b"theirs" and (xla / "model.neff").exists() == (neff_file is not None)


def test_a_cache_dir_of_the_flags_is_moved_and_other_flags_are_kept(caches, monkeypatch, tmp_path):
    monkeypatch.setenv("NEURON_CC_FLAGS", f"-O1 --cache_dir {tmp_path / 'flags'} --lnc 1")
    with watch(gemm_program()) as seen:
        assert seen.environment["NEURON_CC_FLAGS"] == "-O1 --lnc 1"
        own_xla(seen, 1)
    assert [path.parents[1] for path in seen.claimed] == [tmp_path / "flags"]


def test_programs_keep_their_own_entries(caches):
    other = gemm_program(constants=TILES | {"rows": 256})
    for n, one in enumerate((gemm_program(), other)):
        with watch(one) as seen:
            own_xla(seen, n, neff=b"NEFF %d" % n)
    assert {path.name[:8]: owner for path, owner in ledger.owners().items()} == {
        "MODULE_0": gemm_program(),
        "MODULE_1": other,
    }


def test_a_failing_compilation_claims_nothing(caches):
    with pytest.raises(RuntimeError), watch(gemm_program()) as seen:
        own_xla(seen, 1)
        raise RuntimeError("the compiler gave up")
    assert ledger.owners() == {}


def test_a_ledger_of_the_first_format_claims_nothing(caches):
    with watch(gemm_program()) as seen:
        folder = own_xla(seen, 1)
    for path in ledger.directory().glob("*.json"):
        path.write_text(path.read_text().replace("trnqc.neff/2", "trnqc.neff/1"))
    assert ledger.owners() == {} and ledger.clear() == [] and folder.exists()


def test_a_damaged_ledger_claims_nothing_and_nothing_is_removed(caches):
    with watch(gemm_program()) as seen:
        folder = own_xla(seen, 1)
    for path in ledger.directory().glob("*.json"):
        path.write_text("{")
    with pytest.warns(RuntimeWarning, match="cannot be read"):
        assert ledger.owners() == {}
    with pytest.warns(RuntimeWarning, match="it claims nothing"):
        assert ledger.clear() == []
    assert folder.exists()


# -- clearing ---------------------------------------------------------------------------------------------------------


def test_only_our_entries_are_cleared(caches):
    theirs = [put_xla(caches["xla"], 1), put_native(caches["native"], "abcd01")]
    with watch(gemm_program()) as seen:
        ours = [own_xla(seen, 2, neff=b"2"), own_native(seen, "abcd02", b"3")]
    assert [what for _, what in ledger.clear()] == ["removed", "removed"]
    assert all(path.exists() for path in theirs) and not any(path.exists() for path in ours)
    assert ledger.clear() == [] and ledger.owners() == {}


def test_files_that_others_put_into_our_folder_are_left(caches):
    with watch(gemm_program()) as seen:
        folder = own_xla(seen, 1)
    (folder / "notes.txt").write_text("theirs")
    assert [what for _, what in ledger.clear()] == ["removed"]
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_clearing_one_kernel_leaves_the_others(caches):
    other = neff_program("mp2_energy", {"nocc": 3, "nvir": 5, "naux": 7}, "fp32", "trn2")
    folders = []
    for n, one in enumerate((gemm_program(), other)):
        with watch(one) as seen:
            folders.append(own_xla(seen, n, neff=b"%d" % n))
    ledger.clear("gemm")
    assert [folder.exists() for folder in folders] == [False, True]


def test_clearing_what_is_stale(caches):
    folders = []
    for n, one in enumerate((gemm_program(), dataclasses.replace(gemm_program(), source="0" * 16))):
        with watch(one) as seen:
            folders.append(own_xla(seen, n, neff=b"%d" % n))
    assert len(ledger.clear(stale_only=True)) == 1
    assert [folder.exists() for folder in folders] == [True, False]


def test_entries_that_changed_hands_are_left_alone(caches):
    with watch(gemm_program()) as seen:
        folder = own_xla(seen, 1)
    put_xla(caches["xla"], 1, neff=b"somebody compiled this again")
    assert ledger.owners() == {}
    assert [what for _, what in ledger.clear()] == ["left: its program is not the one that was claimed"]
    assert folder.exists()


def test_locked_entries_are_left_and_stay_ours(caches):
    with watch(gemm_program()) as seen:
        folder = own_xla(seen, 1)
    lock = folder / "model.hlo_module.pb.lock"
    lock.touch()
    assert "clear-locks" in ledger.clear()[0][1] and folder.exists()
    lock.unlink()
    assert [what for _, what in ledger.clear()] == ["removed"]


def test_entries_outside_the_caches_of_this_environment_are_left_alone(caches, monkeypatch, tmp_path):
    with watch(gemm_program()) as seen:
        folder = own_xla(seen, 1)
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(tmp_path / "elsewhere"))
    assert ledger.clear()[0][1].startswith("left: it is no entry of the caches")
    assert folder.exists()


def test_entries_that_are_gone_are_forgotten(caches):
    with watch(gemm_program()) as seen:
        folder = own_xla(seen, 1)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    assert [what for _, what in ledger.clear()] == ["gone already"]
    assert list(ledger.directory().glob("*.json")) == []


# -- warming ----------------------------------------------------------------------------------------------------------

TOOL = """#!/bin/sh
# Lays a graph, then its compiled program, into the cache as the vendor's tool does; says what it was called with.
echo "$* target=$NEURON_PLATFORM_TARGET_OVERRIDE flags=$NEURON_CC_FLAGS" >> "$TOOL_LOG"
folder="$NEURON_COMPILE_CACHE_URL/neuronxcc-2.24/MODULE_77+$NEURON_PLATFORM_TARGET_OVERRIDE"
case "$2" in
  collect) mkdir -p "$folder"; printf 'AwsNeuronCustomNativeKernel' > "$folder/model.hlo_module.pb" ;;
  compile) [ -z "$TOOL_FAILS" ] || { echo "NCC_EVRF065 kernel too old" >&2; exit 70; }
           printf 'NEFF' > "$folder/model.neff" ;;
esac
"""


@pytest.fixture
def compiler(caches, tmp_path, monkeypatch):
    """A machine without a chip on which a stand-in for the vendor's tool is installed; returns its log."""
    tool = tmp_path / "bin" / "neuron_parallel_compile"
    tool.parent.mkdir()
    tool.write_text(TOOL)
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TOOL_LOG", str(tmp_path / "log"))
    monkeypatch.setattr("trnqc.backends.neuron.packages.device_files", lambda: ())
    monkeypatch.setenv("NEURON_CC_FLAGS", "--target=trn2")
    return tmp_path / "log"


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_warming_without_a_chip_collects_then_compiles_for_the_target(compiler, target, monkeypatch):
    monkeypatch.setenv("NEURON_CC_FLAGS", f"-O2 --target {target}")
    wanted = gemm_program(target=target)
    compiled = warm(wanted)
    assert [path.name for path in compiled] == [f"MODULE_77+{target}"]
    assert list(ledger.owners().values()) == [wanted]
    calls = compiler.read_text().splitlines()
    assert [call.split()[1] for call in calls] == ["collect", "compile"]
    assert all("-m trnqc.backends.neuron.neff.warming" in call and '"rows": 128' in call for call in calls)
    assert all(call.endswith(f"target={target} flags=-O2 --target {target}") for call in calls)


@pytest.mark.parametrize(
    ("flags", "words"),
    [("", "it is ''. Set NEURON_CC_FLAGS='--target=trn2' for"), ("-O2 --target=trn1", "it names trn1. Set ")],
)
def test_flags_of_a_launch_have_to_name_the_target_of_another_machine(compiler, flags, words, monkeypatch):
    """The flags are part of the key: a launch with others would not find what was compiled."""
    monkeypatch.setenv("NEURON_CC_FLAGS", flags)
    with pytest.raises(CompilerError, match="is keyed by NEURON_CC_FLAGS as a launch has it") as caught:
        warm(gemm_program())
    assert words in str(caught.value)
    assert not compiler.exists() and ledger.owners() == {}


def test_warming_twice_makes_nothing_new(compiler):
    assert warm(gemm_program()) and warm(gemm_program()) == []
    assert len(ledger.owners()) == 1


def test_a_failing_compiler_is_quoted(compiler, monkeypatch):
    monkeypatch.setenv("TOOL_FAILS", "1")
    with pytest.raises(CompilerError, match=r"--command compile` ended with status 70:\nNCC_EVRF065"):
        warm(gemm_program())
    assert ledger.owners() == {}


def test_without_chip_and_compiler_the_error_says_what_to_do(caches, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr("trnqc.backends.neuron.packages.device_files", lambda: ())
    with pytest.raises(CompilerError) as caught:
        warm(gemm_program())
    for word in ("no /dev/neuron* device", "neuron_parallel_compile is not on PATH", "trn2 instance", "pip install"):
        assert word in str(caught.value)


# -- the command ------------------------------------------------------------------------------------------------------


def command(*words):
    import argparse

    from trnqc.cli import cache

    parser = argparse.ArgumentParser()
    cache.add_arguments(parser)
    return cache.run(parser.parse_args(words))


def test_the_command_lists_warms_and_clears(compiler, caches, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    put_xla(caches["xla"], 1)
    monkeypatch.setenv("NEURON_CC_FLAGS", "--target=trn1")
    assert command("warm", "gemm", "--shape", "256,512,384", "--target", "trn1") == 0
    assert "MODULE_77+trn1" in capsys.readouterr().out
    assert command("list") == 0
    shown = capsys.readouterr().out
    assert "not ours, calls an NKI kernel" in shown and "gemm M 256, N 512, K 384, fp32, trn1" in shown
    assert command("clear") == 0
    shown = capsys.readouterr().out
    assert "1 of our 1 entries removed" in shown
    assert "neither listed nor cleared by trnqc: local copies" in shown and "traces of NKI kernels" in shown
    assert (caches["xla"] / COMPILER / "MODULE_1+d41d8cd9").exists()


def test_warm_needs_a_shape(caches):
    with pytest.raises(InputError, match="needs KERNEL and --shape"):
        command("warm", "gemm")


# -- the tuned tile in the vendor's keys ------------------------------------------------------------------------------


def traced(kernel, shape, constants, target="trn2"):
    """The instructions that a kernel becomes, as text: what the vendor's graph of a launch contains."""
    descriptor, recorder = kernels()[kernel], Recorder()
    call = descriptor.example(shape, "fp32", constants, 1, np.zeros)
    with _targeting(target):
        function = getattr(descriptor.function, "func", descriptor.function)
        execute(function, call.args, call.constants, 1, dry=True, target=TARGETS[target], observer=recorder)
    return "\n".join(map(repr, recorder.program))


def modelled_keys(kernel, shape, constants):
    """Keys as documented: PyTorch/XLA hashes graph and flags, the native path shapes, dtypes and constant values."""
    call = kernels()[kernel].example(shape, "fp32", constants, 1, np.zeros)
    arguments = [(a.shape, str(a.dtype)) for a in call.args]
    xla = key_of(traced(kernel, shape, constants), os.environ.get("NEURON_CC_FLAGS", ""))
    return xla, key_of(kernel_hash(kernels()[kernel]), repr(arguments), repr(sorted(call.constants.items())))


# Tiles. Other constants, such as the engine that copies results, may leave the graph of a small problem as it is.
SIZES = {"gemm": ("rows", "cols", "kchunk"), "mp2_energy": ("block", "kchunk", "group")}


def choices(kernel, shape):
    """Some different tiles that tuning may choose."""
    descriptor, found = kernels()[kernel], []
    values = descriptor.knobs(shape)
    for point in itertools.product(*values.values()):
        with suppress(Infeasible):
            constants = descriptor.realise(dict(zip(values, point)), shape, "fp32", "trn2")
            if all(any(constants[name] != other[name] for name in SIZES[kernel]) for other in found):
                found.append(constants)
        if len(found) == 4:
            break
    return found


@pytest.mark.parametrize(("kernel", "extents"), [("gemm", (256, 1024, 512)), ("mp2_energy", (24, 200, 700))])
def test_tuned_tiles_are_part_of_both_keys_of_the_vendor(kernel, extents, monkeypatch):
    """Each choice of tiles is another graph and has other constant values; the same choice has the same keys."""
    monkeypatch.delenv("NEURON_CC_FLAGS", raising=False)
    shape = dict(zip(kernels()[kernel].dims, extents))
    tiles = choices(kernel, shape)
    keys = [modelled_keys(kernel, shape, constants) for constants in tiles]
    assert len(tiles) == 4 and modelled_keys(kernel, shape, dict(tiles[0])) == keys[0]
    for own in zip(*keys):
        assert len(set(own)) == len(tiles)
    monkeypatch.setenv("NEURON_CC_FLAGS", "-O3")
    assert modelled_keys(kernel, shape, tiles[0])[0] != keys[0][0]
