"""When ``import nki`` resolves to the simulator."""

import importlib
import os
import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest

from trnqc import sim
from trnqc.errors import PackageTooOld
from trnqc.sim.launch.install import nki_for_kernels

STUB = 'raise ImportError("WRONG PACKAGE")\n'


@pytest.fixture
def clean():
    """No ``nki`` before or after."""
    before = {n: m for n, m in sys.modules.items() if n == "nki" or n.startswith("nki.")}
    for name in before:
        del sys.modules[name]
    yield
    for name in [n for n in sys.modules if n == "nki" or n.startswith("nki.")]:
        del sys.modules[name]
    sys.modules.update(before)


def package(tmp_path, monkeypatch, source):
    (tmp_path / "nki").mkdir()
    (tmp_path / "nki" / "__init__.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()


@pytest.mark.usefixtures("clean")
def test_a_foreign_kernel_runs_unmodified(monkeypatch, tmp_path):
    package(tmp_path, monkeypatch, STUB)
    assert sim.install()
    (tmp_path / "foreign.py").write_text(
        "import nki, nki.language as nl, nki.isa as nisa\n"
        "from nki.typing import tensor\n"
        "from nki.isa.constants import oob_mode\n"
        "@nki.jit\n"
        "def twice(x: tensor[4, 4]):\n"
        "    tile, out = nl.load(x), nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)\n"
        "    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)\n"
        "    nisa.dma_copy(dst=out, src=tile, oob_mode=oob_mode.error)\n"
        "    return out\n"
        "def run(x):\n"
        "    return nki.simulate(twice)(x)\n"
    )
    x = np.eye(4, dtype=np.float32)
    np.testing.assert_array_equal(importlib.import_module("foreign").run(x), 2 * x)
    assert sim.find_real_nki() is None
    sim.uninstall()
    with pytest.raises(ImportError, match="WRONG PACKAGE"):
        importlib.import_module("nki")


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize(
    ("source", "real"),
    [
        ('__version__ = "0.6.0"', True),
        ('__version__ = "0.7.1+abc"', True),
        ('__version__ = "0.2.8"', False),
        (STUB, False),
    ],
)
def test_a_real_nki_wins(monkeypatch, tmp_path, source, real):
    package(tmp_path, monkeypatch, source)
    result = sim.find_real_nki()
    assert (result is not None) is real
    assert sim.install() is not real
    if real:
        assert importlib.import_module("nki") is result


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("version", ["0.3.0", "0.5.1"])
def test_kernels_refuse_an_nki_without_device_loops(monkeypatch, tmp_path, version):
    """It is the vendor's all the same: the simulator neither takes its name nor its place."""
    package(tmp_path, monkeypatch, f'__version__ = "{version}"')
    with pytest.raises(PackageTooOld, match=f"nki {version} is too old: 0.6 or newer is needed for nl.fori_loop"):
        nki_for_kernels()
    assert not sim.install()


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("source", ['__version__ = "0.6.0"', '__version__ = "0.10.0"', STUB])
def test_kernels_take_a_newer_nki_or_the_simulator(monkeypatch, tmp_path, source):
    package(tmp_path, monkeypatch, source)
    assert (nki_for_kernels() is None) is (source == STUB)


def test_a_backend_of_kernels_names_both_versions(tmp_path):
    """Backends without kernels are not concerned."""
    (tmp_path / "nki.py").write_text('__version__ = "0.5.0"')
    code = (
        "from trnqc import backends\n"
        "found = backends.statuses()\n"
        "assert found['cpu'].usable\n"
        "for name in ('simulator', 'neuron'):\n"
        "    assert not found[name].usable\n"
        "    assert 'nki 0.5.0 is too old: 0.6 or newer is needed' in found[name].reason, found[name]\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": path})


@pytest.mark.usefixtures("clean")
def test_installing_twice_changes_nothing(monkeypatch, tmp_path):
    package(tmp_path, monkeypatch, STUB)
    assert sim.install()
    assert sim.install()
    assert isinstance(sys.modules["nki"], ModuleType)
    assert sys.modules["nki.language"] is sim.language


def test_the_simulator_is_a_leaf():
    """Importing it brings in neither torch nor any other part of the library."""
    code = (
        "import sys, trnqc.sim\n"
        "mine = {n for n in sys.modules if n.startswith('trnqc') and not n.startswith('trnqc.sim')}\n"
        "assert mine == {'trnqc', 'trnqc.errors', 'trnqc.lazy', 'trnqc.version'}, mine\n"
        "assert not {'torch', 'scipy', 'pyscf', 'nki'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
