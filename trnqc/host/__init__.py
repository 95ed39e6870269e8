"""This machine, as every room needs to know it; each rule is stated once.

memory     how much there is, how much is free (control groups are respected), and sizes in words
threads    how many threads a call takes, and its work on several threads
blas       the BLAS behind NumPy, and one thread for all BLAS libraries while our own threads run
arrays     arrays that begin at a cache line, and large ones whose memory is used again
files      files that are replaced whole or not at all, locks, checksummed records, the cache directory
rates      measured speeds of this machine, kept for later processes
progress   bars for stages that take longer than two seconds, on a terminal only
"""
