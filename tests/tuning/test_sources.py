"""The digest of a kernel's source changes only when the computation changes."""

import ast
import sys

import pytest

from trnqc.errors import InputError
from trnqc.tuning import sources
from trnqc.tuning.sources import canonical, source_hash

HELPER = "STEP = 3\n\ndef add(x):\n    return x + STEP\n\ndef host_only(x):\n    return -x\n"
KERNEL = "from {p}.helper import add\nfrom {p}.lang import nl\n\ndef kernel(a):\n    return add(a) * nl\n"


def test_an_unknown_name_is_named():
    with pytest.raises(InputError, match=r"reference_gemm.*but not 'missing'"):
        source_hash("nki_kernels.gemm", "missing")


@pytest.mark.parametrize(
    "one, other",
    [
        ("def f(a):\n    return a + 1", 'def f(a):\n    """Doc."""\n    return (a+1)  # why'),
        ("def f(a):\n    return a", "def f(a: int) -> int:\n    return a"),
        ("x = [1, 2]", "x = [\n    1,\n    2,\n]"),
    ],
)
def test_layout_does_not_count(one, other):
    assert canonical(ast.parse(one).body) == canonical(ast.parse(other).body)


@pytest.mark.parametrize("one, other", [("x = a + b", "x = b + a"), ("x = 1", "x = 1.0"), ("f(a, b=1)", "f(a, c=1)")])
def test_meaning_counts(one, other):
    assert canonical(ast.parse(one).body) != canonical(ast.parse(other).body)


def write(tmp_path, name, kernel, helper, lang="nl = 2\n"):
    (tmp_path / name).mkdir(parents=True)
    texts = {"__init__": "", "kernel": kernel.replace("{p}", name), "helper": helper, "lang": lang}
    for file, text in texts.items():
        (tmp_path / name / f"{file}.py").write_text(text)


def digest_of(tmp_path, monkeypatch, case, **texts):
    """Digest of a package named alike in a place of its own, so that only its text differs."""
    write(tmp_path / case, "made_package", **({"kernel": KERNEL, "helper": HELPER} | texts))
    return digest_in(tmp_path / case, monkeypatch, "made_package.kernel", "kernel")


def digest_in(place, monkeypatch, module, name):
    """Digest of a definition in the package of a place."""
    with monkeypatch.context() as patch:
        patch.syspath_prepend(place)
        sources._module.cache_clear()
        forget()
        digest = source_hash(module, name)
        forget()
    sources._module.cache_clear()
    return digest


def forget():
    for name in [name for name in sys.modules if name.startswith("made_package")]:
        del sys.modules[name]


def test_what_the_kernel_reaches_counts_and_what_it_does_not_reach_does_not(tmp_path, monkeypatch):
    base = digest_of(tmp_path, monkeypatch, "base")
    same = digest_of(tmp_path, monkeypatch, "host", helper=HELPER.replace("-x", "x * x"))
    vendor = digest_of(tmp_path, monkeypatch, "vendor", lang="nl = 7\n")
    constant = digest_of(tmp_path, monkeypatch, "constant", helper=HELPER.replace("STEP = 3", "STEP = 4"))
    code = digest_of(tmp_path, monkeypatch, "code", helper=HELPER.replace("x + STEP", "x - STEP"))
    assert base == same == vendor
    assert len({base, constant, code}) == 3


def test_definitions_in_other_folders_of_the_package_count(tmp_path, monkeypatch):
    """A kernel in a folder, with a definition that stands in the folder above."""
    text = KERNEL.replace("kernel(a)", "inner(a)")
    digests = []
    for case, step in (("one", "3"), ("other", "4")):
        write(tmp_path / case, "made_package", KERNEL, HELPER.replace("STEP = 3", f"STEP = {step}"))
        folder = tmp_path / case / "made_package" / "folder"
        folder.mkdir()
        (folder / "__init__.py").write_text("")
        (folder / "inner.py").write_text(text.replace("{p}", "made_package"))
        digests.append(digest_in(tmp_path / case, monkeypatch, "made_package.folder.inner", "inner"))
    assert digests[0] != digests[1]
