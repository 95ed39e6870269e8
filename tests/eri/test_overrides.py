"""Methods that users have replaced: the numbers are those of PySCF with the same class, or there is one error."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from pyscf import df, dft, gto, lib, scf
from pyscf.df.grad import rhf as fitted_gradient
from pyscf.dft import gen_grid, numint
from pyscf.grad import rhf as gradient
from pyscf.grad import rks as gradient_of_functional
from pyscf.hessian import rhf as hessian

import trnqc
from trnqc.errors import UnsupportedError
from trnqc.host.overrides import users_method
from trnqc.pyscf import accelerate as layer
from trnqc.pyscf.density_fitting import DF
from trnqc.pyscf.early import precision

FITTING = {"H": [[0, [2.0, 0.4], [0.6, 0.7]]], "He": [[0, [3.0, 0.4], [0.9, 0.7]]]}
# What a user's method multiplies its results with.
FACTOR = 1.05


def molecule(**more):
    return gto.M(atom="H 0 0 0; H 0.1 0 0.74; He 0.2 1.5 0.3", basis="6-31g", verbose=0, **more)


def scaled(result):
    """A result of any of the methods, larger than PySCF's."""
    if isinstance(result, (tuple, list)):
        return type(result)(scaled(part) for part in result)
    if result is None or np.ndim(result) < 2:
        return result
    larger = FACTOR * np.asarray(result)
    return lib.tag_array(larger, **{tag: scaled(x) for tag, x in getattr(result, "__dict__", {}).items()})


def overriding(base, name):
    """A class of a user whose method has the results of that of `base`, larger."""
    method = getattr(base, name)
    return type("Mine", (base,), {name: lambda self, *args, **options: scaled(method(self, *args, **options))})


def direct(mf):
    return mf.set(max_memory=1)


def fitted(mf, **options):
    return mf.density_fit(auxbasis=FITTING, **options).set(direct_scf=False)


def coarse(mf):
    mf.grids.level = 0
    return mf


MODES = {
    "in memory": lambda mf: mf,
    "direct": direct,
    "fitted": fitted,
    "fitted J": lambda mf: fitted(mf, only_dfj=True),
}


def check(make, plain):
    """Compare a cycle of an object with that of PySCF, where a method of a user counts, and without that method."""
    theirs, ours, without = (mf.set(max_cycle=1).run() for mf in (make(), trnqc.accelerate(make()), plain()))
    assert ours.e_tot == pytest.approx(theirs.e_tot, abs=1e-8)
    return ours, abs(without.e_tot - theirs.e_tot) > 1e-4


@pytest.mark.parametrize(
    ("base", "mode", "name"),
    [
        *product([scf.hf.RHF, scf.uhf.UHF], MODES, ["get_jk", "get_j", "get_k", "get_veff", "get_hcore", "get_fock"]),
        *product([dft.uks.UKS], ["direct", "fitted"], ["get_jk", "get_k"]),
    ],
    ids=lambda part: getattr(part, "__name__", part),
)
def test_a_method_of_the_scf_object_is_called(base, mode, name):
    def make(cls):
        mf = MODES[mode](cls(molecule()))
        return coarse(mf.set(xc="hse06")) if base is dft.uks.UKS else mf

    mine = overriding(base, name)
    ours, counts = check(lambda: make(mine), lambda: make(base))
    if name == "get_jk" and counts:
        assert "Mine.get_jk" in ours.ran_on


@pytest.mark.parametrize("name", ["eig", "get_init_guess", "DIIS"])
def test_other_steps_of_the_scf_are_called(name):
    called = []

    class MyDIIS(scf.diis.CDIIS):
        def update(self, *args, **options):
            called.append(True)
            return super().update(*args, **options)

    def noted(self, *args, **options):
        called.append(True)
        return getattr(scf.hf.RHF, name)(self, *args, **options)

    mine = type("Mine", (scf.hf.RHF,), {name: MyDIIS if name == "DIIS" else noted})
    expected = scf.RHF(molecule()).kernel()
    assert trnqc.accelerate(mine(molecule())).kernel() == pytest.approx(expected, abs=1e-8)
    assert called


def test_diis_of_the_object_and_of_pyscf():
    mf = trnqc.accelerate(scf.RHF(molecule()))
    assert issubclass(mf.DIIS, layer.CDIIS)
    mf.DIIS = scf.diis.EDIIS
    assert mf.DIIS is scf.diis.EDIIS


@pytest.mark.parametrize("exchange", ["direct", "seminumerical"])
@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: overriding(scf.hf.RHF, "get_jk")(molecule()), "Mine.get_jk"),
        (lambda: fitted(overriding(scf.hf.RHF, "get_jk")(molecule())), "Mine.get_jk"),
        (lambda: overriding(scf.hf.RHF, "get_k")(molecule()), "Mine.get_k"),
        (lambda: fitted(scf.RHF(molecule()), with_df=overriding(df.DF, "get_jk")(molecule(), FITTING)), "Mine.get_jk"),
    ],
    ids=["J and K", "below density fitting", "K", "J and K of the fitting"],
)
def test_an_exchange_that_would_pass_over_a_method_is_refused(make, named, exchange):
    with pytest.raises(UnsupportedError, match=f"{named}.*leave exchange out"):
        trnqc.accelerate(make(), exchange=exchange)
    assert not trnqc.accelerate(make(), exchange="auto")._on_grid(molecule())


def read(self, *args, **options):
    yield from (FACTOR * block for block in df.DF.loop(self, *args, **options))


@pytest.mark.parametrize("of", ["class", "object"])
@pytest.mark.parametrize("name", ["get_jk", "loop"])
def test_methods_of_the_density_fitting_are_called(name, of):
    mine = overriding(df.DF, name) if name == "get_jk" else type("Mine", (df.DF,), {"loop": read})

    def make():
        if of == "class":
            return fitted(scf.RHF(molecule()), with_df=mine(molecule(), FITTING))
        mf = fitted(scf.RHF(molecule()))
        setattr(mf.with_df, name, getattr(mine, name).__get__(mf.with_df))
        return mf

    assert check(make, lambda: fitted(scf.RHF(molecule())))[1]


def test_a_subclass_of_our_density_fitting_is_read_by_its_own_method():
    dm = scf.RHF(molecule()).get_init_guess()
    theirs, ours = (type("Mine", (of,), {"loop": read})(molecule(), FITTING) for of in (df.DF, DF))
    np.testing.assert_allclose(ours.get_jk(dm), theirs.get_jk(dm), rtol=0, atol=1e-10)


@pytest.mark.parametrize("of", ["class", "object"])
@pytest.mark.parametrize("name", ["get_fock", "get_grad", "get_hcore", "get_veff", "get_jk"])
def test_early_precision_is_not_for_methods_of_users(name, of):
    mf = fitted(scf.RHF(molecule()))
    assert not precision.why_not(mf, None)
    if of == "object":
        setattr(mf, name, getattr(mf, name))
    else:
        mf.__class__ = overriding(type(mf), name)
    assert name in precision.why_not(trnqc.accelerate(mf), None)


def blocks(self, *args, **options):
    for ao, mask, weights, points in numint.NumInt.block_loop(self, *args, **options):
        yield ao, mask, FACTOR * weights, points


def partition(self, *args, **options):
    points, weights = gen_grid.Grids.get_partition(self, *args, **options)
    return points, FACTOR * weights


def functional(self, *args, **options):
    exc, vxc, *more = numint.NumInt.eval_xc_eff(self, *args, **options)
    return exc * FACTOR, vxc * FACTOR, *more


INTEGRATION = {
    "nr_rks": lambda ni, *args, **options: scaled(numint.NumInt.nr_rks(ni, *args, **options)),
    "block_loop": blocks,
    "eval_rho": lambda ni, *args, **options: FACTOR * numint.NumInt.eval_rho(ni, *args, **options),
    "eval_xc_eff": functional,
    "get_partition": partition,
}


@pytest.mark.parametrize("of", ["class", "object"])
@pytest.mark.parametrize("name", INTEGRATION)
def test_methods_of_the_integration_are_called_also_for_gradients(name, of):
    def make(mine=True):
        mf = coarse(dft.RKS(molecule(), xc="pbe0"))
        held = "grids" if name == "get_partition" else "_numint"
        old = getattr(mf, held)
        if mine and of == "class":
            cls = type("Mine", (type(old),), {name: INTEGRATION[name]})
            new = cls(mf.mol) if held == "grids" else cls()
            setattr(mf, held, new)
            new.__dict__.update(old.__dict__)
        elif mine:
            setattr(old, name, INTEGRATION[name].__get__(old))
        return mf

    ours, counts = check(make, lambda: make(False))
    assert counts == (name != "eval_rho")
    expected = make().set(max_cycle=1).run().nuc_grad_method().kernel()
    np.testing.assert_allclose(ours.nuc_grad_method().kernel(), expected, rtol=0, atol=1e-7)


GRADIENTS = {
    "exact": (gradient.Gradients, lambda: direct(scf.RHF(molecule()))),
    "fitted": (fitted_gradient.Gradients, lambda: fitted(scf.RHF(molecule()))),
    "functional": (gradient_of_functional.Gradients, lambda: coarse(dft.RKS(molecule(), xc="pbe0"))),
}


@pytest.mark.parametrize("of", ["class", "object"])
@pytest.mark.parametrize("kind", GRADIENTS)
@pytest.mark.parametrize("name", ["get_jk", "get_k", "get_veff", "get_hcore"])
def test_methods_of_a_gradients_object_are_called(kind, name, of):
    base, make = GRADIENTS[kind]
    mine = overriding(base, name)

    class Mine(type(make())):
        def nuc_grad_method(self):
            return mine(self)

    own = make()
    if of == "class":
        own.__class__ = Mine
    gradients = [mf.set(max_cycle=1).run().nuc_grad_method() for mf in (own.copy(), trnqc.accelerate(own))]
    if of == "object":
        for one in gradients:
            setattr(one, name, getattr(mine, name).__get__(one))
    expected, found = (one.kernel() for one in gradients)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", ["make_h1", "partial_hess_elec", "get_hcore"])
def test_methods_of_a_hessian_object_are_called(name):
    mine = overriding(hessian.Hessian, name)

    class Mine(scf.hf.RHF):
        def Hessian(self):
            return mine(self)

    mol = gto.M(atom="H 0 0 0; H 0 0.1 0.8", basis="6-31g", verbose=0)
    theirs, ours = Mine(mol).run(conv_tol=1e-12), trnqc.accelerate(Mine(mol)).run(conv_tol=1e-12)
    np.testing.assert_allclose(ours.Hessian().kernel(), theirs.Hessian().kernel(), rtol=0, atol=1e-6)


def test_the_response_of_a_hessian_goes_through_the_users_j_and_k():
    mol = gto.M(atom="H 0 0 0; H 0 0.1 0.8", basis="6-31g", verbose=0)
    mine = overriding(scf.hf.RHF, "get_jk")
    theirs, ours = mine(mol).run(conv_tol=1e-12), trnqc.accelerate(mine(mol)).run(conv_tol=1e-12)
    np.testing.assert_allclose(ours.Hessian().kernel(), theirs.Hessian().kernel(), rtol=0, atol=1e-6)


def test_whose_a_method_is():
    mine = overriding(scf.hf.RHF, "get_jk")(molecule())
    assert users_method(mine, "get_veff", "get_jk") == "Mine.get_jk"
    assert not users_method(trnqc.accelerate(scf.RHF(molecule())), "get_jk", "scf", "get_veff")
    assert users_method(trnqc.accelerate(mine), "get_jk") == "Mine.get_jk"
    assert users_method(fitted(mine), "get_jk") == "" and users_method(fitted(mine), "get_jk", below=df.df_jk._DFHF)


def test_a_method_that_was_put_into_a_class_of_pyscf_is_the_users(monkeypatch):
    monkeypatch.setattr(scf.hf.RHF, "get_jk", lambda self, *_, **__: (0, 0))
    assert users_method(scf.RHF(molecule()), "get_jk") == "RHF.get_jk"
