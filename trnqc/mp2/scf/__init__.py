"""The Hartree-Fock reference of a job (`of_job`), by one process or with J and K on all ranks (`hartree_fock`)."""
