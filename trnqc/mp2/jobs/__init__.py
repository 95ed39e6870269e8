"""A DF-MP2 job (job) from its geometry to its result (run, scf), and what it keeps on disk (store, checkpoint)."""
