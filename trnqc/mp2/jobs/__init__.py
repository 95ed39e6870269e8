"""A DF-MP2 job: what it needs, where it runs, what it keeps on disk to be restarted from."""
