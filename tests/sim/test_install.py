"""When ``import nki`` resolves to the simulator."""

import importlib
import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest

from trnqc import sim

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
        "assert mine == {'trnqc', 'trnqc.errors', 'trnqc.lazy'}, mine\n"
        "assert not {'torch', 'scipy', 'pyscf', 'nki'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
