"""A DF-MP2 job from its geometry to its result (job), and what it keeps on disk (store, checkpoint)."""
