"""The summary of a result for a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trnqc.mp2.result import MP2Result
from trnqc.mp2.result_parts import Comparison, Run, System


def brief(result: MP2Result) -> str:
    """One line with the total and the correlation energy."""
    return f"E(MP2) = {result.e_tot!r} Hartree, E(corr) = {result.e_corr!r} Hartree"


def report(result: MP2Result, pairs: bool = False) -> Group:
    """Tables of the molecule, the energies, the pair step with its estimated error, and the times.

    Parameters
    ----------
    result
        The result.
    pairs
        Whether to add a table of pair energies.
    """
    parts: list[RenderableType] = [_what(result), _energies(result), _how(result)]
    parts += [_comparison(result, other) for other in result.comparisons]
    parts.append(_times(result))
    if pairs:
        parts.append(_pairs(result))
    return Group(*(item for part in parts for item in (part, Text())))


def _facts(title: str, rows: dict[str, str]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False, box=None, pad_edge=False, title_style="bold")
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, Text(value))
    return table


def _what(result: MP2Result) -> Table:
    s, system = result.sizes, result.system
    sizes = f"{s.nocc} correlated occupied, {s.nvir} virtual, {s.naux} auxiliary"
    if system is None:
        return _facts("DF-MP2", {"sizes": sizes})
    g = system.geometry
    ghosts = f" and {g.ghosts} ghost atom{'s' * (g.ghosts > 1)}" if g.ghosts else ""
    return _facts(
        f"DF-MP2 of {g.name}",
        {
            "molecule": f"{g.formula}, {len(g.symbols) - g.ghosts} atoms{ghosts}, charge {g.charge:+d}",
            "basis": f"{system.basis}, {s.nao} atomic orbitals, {s.nmo} molecular orbitals",
            "auxiliary basis": _auxiliary(system),
            "metric": system.metric,
            "integrals": system.integrals or "not recorded",
            "reference": system.scf,
            "J and K": system.scf_ran_on or "not recorded",
            "frozen": _frozen(result),
            "sizes": sizes,
        },
    )


def _auxiliary(system: System) -> str:
    names: dict[str, list[str]] = {}
    for symbol, name in system.auxbasis.items():
        names.setdefault(name, []).append(symbol)
    if len(names) == 1:
        return next(iter(names))
    return "; ".join(f"{', '.join(symbols)}: {name}" for name, symbols in names.items())


def _frozen(result: MP2Result) -> str:
    occ, vir = result.frozen.occ, result.frozen.vir
    virtuals = f", {len(vir)} virtual" if vir else ""
    return f"{len(occ)} occupied{virtuals}" if occ or vir else "nothing (all electrons correlated)"


def _energies(result: MP2Result) -> Table:
    table = Table(title="Energies / Hartree", title_justify="left", title_style="bold")
    table.add_column("")
    table.add_column("correlation", justify="right", no_wrap=True)
    table.add_column("total", justify="right", no_wrap=True)
    if result.e_hf is not None:
        table.add_row("RHF", "", _energy(result.e_hf))
    table.add_row("opposite spin", _energy(result.e_corr_os), "")
    table.add_row("same spin", _energy(result.e_corr_ss), "")
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


def _how(result: MP2Result) -> Table:
    e = result.error
    estimate = f"{e.corr:.1e} Hartree ({e.sampled} of {e.pairs} pairs computed again in fp64)"
    return _facts("Pair step", _where(result.run) | {"selected because": result.run.note, "estimated error": estimate})


def _where(run: Run) -> dict[str, str]:
    return {
        "backend": run.backend,
        "ran on": run.ran_on,
        "factors": run.factors,
        "precision": run.precision,
        "energy expression": "fused with the products" if run.fused else "apart from the products",
    }


def _comparison(main: MP2Result, other: Comparison) -> Group:
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
        ("correlation", main.e_corr, corr, other.difference),
    ):
        table.add_row(name, _energy(mine), _energy(theirs), f"{difference:+.1e}")
    where = _where(other.run) | {"estimated error": f"{other.estimated_error:.1e} Hartree"}
    return Group(_facts(title, where), table)


def _times(result: MP2Result) -> Table:
    table = Table(title="Wall time / s", title_justify="left", title_style="bold", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for stage, seconds in result.timings.items():
        table.add_row(stage, f"{seconds:.3f}")
    table.add_row("all", f"{sum(result.timings.values()):.3f}", end_section=True)
    return table


def _pairs(result: MP2Result) -> Table:
    occupied = range(result.sizes.nocc + len(result.frozen.occ))
    active = [k for k in occupied if k not in result.frozen.occ]
    table = Table(
        title="Pairs (orbitals from 0, frozen ones counted) / Hartree", title_justify="left", title_style="bold"
    )
    for heading in ("i", "j", "opposite spin", "same spin", "pair"):
        table.add_column(heading, justify="right", no_wrap=True)
    for i, (os_row, ss_row) in enumerate(zip(result.pairs.os, result.pairs.ss)):
        for j, (os, ss) in enumerate(zip(os_row, ss_row)):
            table.add_row(str(active[i]), str(active[j]), _energy(os), _energy(ss), _energy(os + ss))
    return table


def _energy(value: float) -> str:
    return f"{value:.10f}"
