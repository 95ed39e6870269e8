"""The Hartree-Fock reference of a job (`of_job`), by one process (`hartree_fock`) or with J and K on all ranks
(`shared_jk`).
"""
