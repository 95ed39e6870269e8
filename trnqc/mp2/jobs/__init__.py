"""A DF-MP2 job (job) from its geometry to its result (run, scf), and its checkpoint (checkpoint)."""
