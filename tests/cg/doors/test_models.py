"""MACE and NequIP models with random weights before, during and after acceleration."""

from __future__ import annotations

import copy
import importlib
import io
import re
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from trnqc.cg import SymmetricContraction, accelerate, undo  # noqa: E402
from trnqc.errors import InputError, UnsupportedError  # noqa: E402

# Largest difference over largest force; in float32 both sides round in every layer.
FORCES = {"float32": 5e-6, "float64": 1e-13}
ENERGY = {"float32": 1e-6, "float64": 1e-14}


def assert_same(actual, expected, dtype):
    (energy, forces), (energy0, forces0) = actual, expected
    assert forces0.abs().max() > 1e-4
    assert (energy - energy0).abs().max() <= ENERGY[dtype] * energy0.abs().max()
    assert (forces - forces0).abs().max() <= FORCES[dtype] * forces0.abs().max()


def test_energies_and_forces_stay(case, dtype):
    before = case.run()
    names = accelerate(case.model)
    assert len(names) >= 2
    assert_same(case.run(), before, dtype)
    assert len(undo(case.model)) == len(names)
    again = case.run()
    assert torch.equal(again[0], before[0])
    assert torch.equal(again[1], before[1])


def test_autocast(case, package, dtype):
    """Forces have the errors of the eight bits of bfloat16 in the other layers, in a few layers."""
    if package != "mace" or dtype != "float32":
        pytest.skip("autocast leaves float64 as it is, and is not meant for the models of other packages")
    _, before = case.run()
    accelerate(case.model)
    with torch.autocast("cpu", torch.bfloat16):
        _, forces = case.run()
    assert (forces - before).abs().max() < 0.2 * before.abs().max()
    assert not torch.equal(forces, before)


def test_what_is_swapped_matters(case, dtype):
    """The comparison above would see a convolution that is wrong by a hundredth."""
    before = case.run()
    accelerate(case.model)
    swapped = [module for module in case.model.modules() if hasattr(module, "fused")]
    for module in swapped:
        module.fused.register_forward_hook(lambda _, __, z: 1.01 * z)
    forces = case.run()[1]
    assert (forces - before[1]).abs().max() > 100 * FORCES[dtype] * before[1].abs().max()


def test_the_state_stays(case):
    before = {name: value.clone() for name, value in case.model.state_dict().items()}
    accelerate(case.model)
    after = case.model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)
    case.model.load_state_dict(before)
    undo(case.model)
    assert list(case.model.state_dict()) == list(before)


def test_a_second_time_changes_nothing(case):
    assert accelerate(case.model)
    assert accelerate(case.model) == ()
    assert undo(case.model)
    assert undo(case.model) == ()


def test_copies_are_swapped_too(case, dtype):
    accelerate(case.model)
    result = case.run(copy.deepcopy(case.model))
    undo(case.model)
    assert_same(result, case.run(), dtype)


@pytest.mark.parametrize("package", ["mace"], indirect=True)
def test_saved_models_are_swapped_too(case, dtype):
    """NequIP's models do not pickle by themselves."""
    expected = case.run()
    accelerate(case.model)
    file = io.BytesIO()
    torch.save(case.model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert_same(case.run(loaded), expected, dtype)
    assert undo(loaded)
    assert_same(case.run(loaded), expected, dtype)


@pytest.mark.parametrize("package", ["mace"], indirect=True)
@pytest.mark.parametrize("dtype", ["float64"], indirect=True)
def test_training_has_the_same_gradients(case):
    """A loss of forces differentiates the convolution twice."""
    expected = gradients_of(case)
    accelerate(case.model)
    for actual, wanted in zip(gradients_of(case), expected, strict=True):
        assert (actual - wanted).abs().max() <= 1e-12 * max(wanted.abs().max(), 1e-6)


def gradients_of(case):
    """Gradients of the sum of squared forces with respect to the weights."""
    case.model.zero_grad()
    case.model.train()
    case.train(case.model)["forces"].pow(2).sum().backward()
    return [p.grad.clone() for p in case.model.parameters() if p.grad is not None]


def test_other_models_are_refused():
    with pytest.raises(UnsupportedError, match="mace or nequip or sevenn"):
        accelerate(torch.nn.Linear(2, 2))
    with pytest.raises(InputError, match="found <class 'dict'>"):
        accelerate({})


@pytest.mark.parametrize("package", ["mace"], indirect=True)
def test_blocks_of_other_libraries_are_refused(case):
    case.model.interactions[1].conv_fusion = "atomic"
    with pytest.raises(UnsupportedError, match=r"interactions\.1\.conv_tp"):
        accelerate(case.model)
    assert undo(case.model) == ()


@pytest.mark.parametrize("package", ["mace"], indirect=True)
def test_dynamics_conserve_energy(package):
    """The example: kinetic and potential energy are exchanged, their sum moves a thousand times less."""
    options = ["--evaluator", "torch", "--steps", "20", "--hidden", "8x0e+8x1o+8x2e"]
    command = [sys.executable, "-m", "examples.md_mace", *options]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    assert "swapped: interactions.0.conv_tp, interactions.1.conv_tp" in printed
    kinetic, total = map(float, re.search(r"moved by (\S+) eV, total energy by (\S+) eV", printed).groups())
    assert kinetic > 1e-4
    assert total < 1e-3 * kinetic


@pytest.mark.parametrize("package", ["mace"], indirect=True)
@pytest.mark.parametrize("correlation", [1, 2, 3, 4])
def test_symmetric_contractions_are_those_of_mace(package, correlation):
    """MACE's module and its coupling tensors, with weights of three elements."""
    from mace.modules.symmetric_contraction import SymmetricContraction as Theirs

    o3 = importlib.import_module("e3nn.o3")
    irreps = {4: "4x0e+4x1o"}.get(correlation, "4x0e+4x1o+4x2e")
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        theirs = Theirs(o3.Irreps(irreps), o3.Irreps("4x0e+4x1o"), correlation, num_elements=3)
        ours = SymmetricContraction(irreps, "4x0e+4x1o", correlation, num_elements=3)
        x, elements = torch.randn(6, 4, o3.Irreps(irreps).dim // 4), torch.tensor([2, 0, 1, 1, 2, 2])
        b = theirs(x, torch.eye(3)[elements])
    finally:
        torch.set_default_dtype(before)
    ordered = [w for c in theirs.contractions for w in (*reversed(list(c.weights)), c.weights_max)]
    assert (ours(x, elements, torch.cat(ordered, 1)) - b).abs().max() <= 1e-13 * b.abs().max()


def test_without_a_compiler_a_model_is_left_as_it_is(case, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    before = case.run()
    with pytest.warns(RuntimeWarning, match="left to PyTorch.*install one"):
        assert accelerate(case.model) == ()
    after = case.run()
    assert torch.equal(after[0], before[0]) and torch.equal(after[1], before[1])
