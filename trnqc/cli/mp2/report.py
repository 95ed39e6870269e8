"""The summary of a result for a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trnqc.cli.tables import facts
from trnqc.mp2.result import MP2Result
from trnqc.mp2.result_parts import BackendComparison, PairRun, Pairs, System


def brief(result: MP2Result) -> str:
    """One line with the total and the correlation energy."""
    return f"E(MP2) = {result.e_tot!r} Hartree, E(corr) = {result.e_corr!r} Hartree"


def report(result: MP2Result, pairs: bool = False) -> Group:
    """Tables of the molecule, the energies, and the pair step with its estimated error.

    Parameters
    ----------
    result
        The result.
    pairs
        Whether to add a table of pair energies.
    """
    parts: list[RenderableType] = [_what(result), _energies(result), _how(result)]
    parts += [_comparison(result, other) for other in result.comparisons]
    if pairs:
        parts.append(_pairs(result))
    return Group(*(item for part in parts for item in (part, Text())))


def _what(result: MP2Result) -> Table:
    s, system = result.sizes, result.system
    occupied, virtual = _spins(s.nocc, s.nocc_beta), _spins(s.nvir, s.nvir_beta)
    sizes = f"{occupied} correlated occupied, {virtual} virtual, {s.naux} auxiliary"
    if system is None:
        return facts("DF-MP2", {"sizes": sizes})
    g = system.geometry
    ghosts = f" and {g.ghosts} ghost atom{'s' * (g.ghosts > 1)}" if g.ghosts else ""
    spin = f", {g.spin} unpaired electron{'s' * (g.spin > 1)}" if g.spin else ""
    square = "" if system.spin_square is None else f", <S^2> = {system.spin_square:.4f}"
    return facts(
        f"DF-MP2 of {g.name}",
        {
            "molecule": f"{g.formula}, {len(g.symbols) - g.ghosts} atoms{ghosts}, charge {g.charge:+d}{spin}",
            "basis": f"{system.basis}, {s.nao} atomic orbitals, {s.nmo} molecular orbitals",
            "auxiliary basis": _auxiliary(system),
            "reference": system.scf + square,
            "frozen": _frozen(result),
            "sizes": sizes,
        },
    )


def _spins(alpha: int, beta: int | None) -> str:
    return str(alpha) if beta is None else f"{alpha} alpha and {beta} beta"


def _auxiliary(system: System) -> str:
    names: dict[str, list[str]] = {}
    for symbol, name in system.auxbasis.items():
        names.setdefault(name, []).append(symbol)
    if len(names) == 1:
        return next(iter(names))
    return "; ".join(f"{', '.join(symbols)}: {name}" for name, symbols in names.items())


def _frozen(result: MP2Result) -> str:
    frozen = result.frozen
    if not any((frozen.occ, frozen.vir, frozen.occ_beta, frozen.vir_beta)):
        return "nothing (all electrons correlated)"
    occupied = _spins(len(frozen.occ), None if frozen.occ_beta is None else len(frozen.occ_beta))
    virtual = _spins(len(frozen.vir), None if frozen.vir_beta is None else len(frozen.vir_beta))
    return f"{occupied} occupied" + (f", {virtual} virtual" if frozen.vir or frozen.vir_beta else "")


def _energies(result: MP2Result) -> Table:
    table = Table(title="Energies / Hartree", title_justify="left", title_style="bold")
    table.add_column("")
    table.add_column("correlation", justify="right", no_wrap=True)
    table.add_column("total", justify="right", no_wrap=True)
    if result.e_hf is not None:
        table.add_row(_reference(result), "", _energy(result.e_hf))
    table.add_row("opposite spin", _energy(result.e_corr_os), "")
    table.add_row("same spin", _energy(result.e_corr_ss), "")
    if result.e_corr_aa is not None and result.e_corr_bb is not None:
        table.add_row("  alpha alpha", _energy(result.e_corr_aa), "")
        table.add_row("  beta beta", _energy(result.e_corr_bb), "")
    if result.e_singles:
        table.add_row("single excitations", _energy(result.e_singles), "")
    c_os, c_ss = result.scs
    for name, corr in (
        ("MP2", result.e_corr),
        (f"SCS-MP2 ({c_os:.4g}, {c_ss:.4g})", result.e_corr_scs),
        (f"SOS-MP2 ({result.sos:.4g})", result.e_corr_sos),
    ):
        total = result.total(corr)
        table.add_row(
            name, _energy(corr), "" if total is None else _energy(total), style="bold" if name == "MP2" else ""
        )
    return table


def _reference(result: MP2Result) -> str:
    """The kind of reference, the first word of its description."""
    return result.system.scf.partition(",")[0] if result.system else "reference"


def _how(result: MP2Result) -> Table:
    """What computed which part. That a job runs on the CPU, and its fp64 arithmetic, need no reasons."""
    run, e, rows = result.run, result.error, _where(result.run)
    if run.backend != "cpu":
        rows["selected because"] = run.note
    if run.precision != "fp64":
        rows["estimated error"] = f"{e.corr:.1e} Hartree ({e.sampled} of {e.pairs} pairs computed again in fp64)"
    if system := result.system:
        rows["J and K"] = system.scf_ran_on or "not recorded"
        rows["three-centre integrals"] = system.integrals or "not recorded"
        rows["metric"] = system.metric
    return facts("Computed by", rows)


def _where(run: PairRun) -> dict[str, str]:
    return {
        "backend": f"{run.backend}, {run.precision}",
        "pairs": run.ran_on,
        "energy expression": "together with the products" if run.fused else "after the products",
        "factors": run.factors,
    }


def _comparison(main: MP2Result, other: BackendComparison) -> Group:
    title = f"Same factors on {other.run.backend} ({other.run.precision}), {other.seconds:.2f} s"
    table = Table(title="Energies / Hartree", title_justify="left", title_style="bold")
    table.add_column("")
    for heading in (
        f"{main.run.backend} {main.run.precision}",
        f"{other.run.backend} {other.run.precision}",
        "difference",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    corr = other.e_corr_os + other.e_corr_ss
    for name, mine, theirs, difference in (
        ("opposite spin", main.e_corr_os, other.e_corr_os, other.difference_os),
        ("same spin", main.e_corr_ss, other.e_corr_ss, other.difference_ss),
        ("correlation", main.e_corr_os + main.e_corr_ss, corr, other.difference),
    ):
        table.add_row(name, _energy(mine), _energy(theirs), f"{difference:+.1e}")
    where = _where(other.run) | {"estimated error": f"{other.estimated_error:.1e} Hartree"}
    return Group(facts(title, where), table)


def _pairs(result: MP2Result) -> Table:
    table = Table(
        title="Pairs (orbitals from 0, frozen ones counted) / Hartree", title_justify="left", title_style="bold"
    )
    frozen, sizes = result.frozen, result.sizes
    alpha = _active(sizes.nocc, frozen.occ)
    if isinstance(result.pairs, Pairs):
        _headings(table, "i", "j", "opposite spin", "same spin", "pair")
        for i, (os_row, ss_row) in enumerate(zip(result.pairs.os, result.pairs.ss)):
            for j, (os, ss) in enumerate(zip(os_row, ss_row)):
                table.add_row(str(alpha[i]), str(alpha[j]), _energy(os), _energy(ss), _energy(os + ss))
        return table
    _headings(table, "spins", "i", "j", "pair")
    beta = _active(sizes.nocc_beta or 0, frozen.occ_beta or ())
    for spins, rows, left, right in (
        ("alpha alpha", result.pairs.aa, alpha, alpha),
        ("alpha beta", result.pairs.ab, alpha, beta),
        ("beta beta", result.pairs.bb, beta, beta),
    ):
        for i, row in enumerate(rows):
            for j, energy in enumerate(row):
                if left is not right or i > j:
                    table.add_row(spins, str(left[i]), str(right[j]), _energy(energy))
    return table


def _headings(table: Table, *headings: str) -> None:
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)


def _active(count: int, frozen: tuple[int, ...]) -> list[int]:
    """Indices of the correlated occupied orbitals among all orbitals."""
    return [k for k in range(count + len(frozen)) if k not in frozen]


def _energy(value: float) -> str:
    return f"{value:.10f}"
