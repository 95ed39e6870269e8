"""A peptide of 272 atoms in the fold of the Trp-cage miniprotein, as an input of the size of benchmarks of integrals.

    python -m scripts.workloads.trp_cage [--out scripts/workloads/trp_cage.xyz]

The Trp-cage TC5b, NLYIQWLKDGGPSSGRPPPS, has 304 atoms with charged ends and side chains. The stand-in leaves out one
glycine of the loop and the last two residues, and has 272. RDKit embeds the chain with the backbone angles of the
fold's elements (Neidigh, Fesinmeyer and Andersen, Nat. Struct. Biol. 9, 425 (2002)): an alpha helix, a 3-10 helix in
the loop, then polyproline II. MMFF94 relaxes it. The result is kept as a file: nothing else needs RDKit.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from scripts import ROOT

SEQUENCE = "NLYIQWLKDGPSSGRPP"
ATOMS = 272
FILE = ROOT / "scripts" / "workloads" / "trp_cage.xyz"
# Backbone angles phi and psi in degrees.
HELIX, HELIX_310, LEFT_HANDED, POLYPROLINE = (-57, -47), (-60, -26), (60, 30), (-75, 145)
# Those of each residue: the first, the helix, the loop with its glycines, the end.
ANGLES = (POLYPROLINE, *[HELIX] * 8, LEFT_HANDED, *[HELIX_310] * 3, LEFT_HANDED, *[POLYPROLINE] * 3)
# A fixed seed, so that the file can be made again, and the most steps of the relaxation.
SEED, STEPS = 7, 2000


def charged(molecule: Any) -> Any:
    """Return the molecule with the charges of pH 7: both ends, Lys, Asp and Arg."""
    from rdkit import Chem

    changes = {"[NX3;H2][CX4]": (0, 1), "[CX3](=O)[OX2H1]": (2, -1), "[NX3H2]C(=[NX2])N": (2, 1)}
    for pattern, (place, charge) in changes.items():
        for match in molecule.GetSubstructMatches(Chem.MolFromSmarts(pattern)):
            molecule.GetAtomWithIdx(match[place]).SetFormalCharge(charge)
    molecule.UpdatePropertyCache()
    Chem.SanitizeMol(molecule)
    return Chem.AddHs(molecule)


def fold(molecule: Any) -> None:
    """Turn the backbone to ANGLES; the ring of a proline keeps its phi."""
    from rdkit.Chem import rdMolTransforms

    conformer = molecule.GetConformer()
    backbone: dict[int, dict[str, int]] = {}
    for atom in molecule.GetAtoms():
        residue = atom.GetPDBResidueInfo()
        if residue is not None:
            backbone.setdefault(residue.GetResidueNumber(), {})[residue.GetName().strip()] = atom.GetIdx()
    for n, (phi, psi) in enumerate(ANGLES, 1):
        own, before, after = backbone[n], backbone.get(n - 1), backbone.get(n + 1)
        inner = own["N"], own["CA"], own["C"]
        if before:
            rdMolTransforms.SetDihedralDeg(conformer, before["CA"], before["C"], own["N"], own["CA"], 180.0)
            if SEQUENCE[n - 1] != "P":
                rdMolTransforms.SetDihedralDeg(conformer, before["C"], *inner, phi)
        if after:
            rdMolTransforms.SetDihedralDeg(conformer, *inner, after["N"], psi)


def peptide() -> Any:
    """Return the molecule with one conformer."""
    from rdkit import Chem
    from rdkit.Chem import AllChem

    molecule = charged(Chem.MolFromSequence(SEQUENCE))
    if molecule.GetNumAtoms() != ATOMS:
        raise ValueError(f"expected {ATOMS} atoms, found {molecule.GetNumAtoms()}")
    if AllChem.EmbedMolecule(molecule, randomSeed=SEED, useRandomCoords=True) != 0:
        raise ValueError("RDKit did not embed the chain")
    AllChem.MMFFOptimizeMolecule(molecule, maxIters=STEPS)
    fold(molecule)
    AllChem.MMFFOptimizeMolecule(molecule, maxIters=STEPS)
    return molecule


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=FILE)
    out = parser.parse_args().out
    molecule = peptide()
    places = molecule.GetConformer().GetPositions()
    atoms = [f"{a.GetSymbol()} {x:.4f} {y:.4f} {z:.4f}" for a, (x, y, z) in zip(molecule.GetAtoms(), places)]
    heading = f"{SEQUENCE}, charge 1, made by scripts/workloads/trp_cage.py, Angstrom"
    out.write_text("\n".join([str(len(atoms)), heading, *atoms]) + "\n")
    print(f"written to {out}")


if __name__ == "__main__":
    main()
