"""Hartree-Fock and Kohn-Sham jobs: Job -> PySCF's object with our integrals -> energies, properties, tasks."""
