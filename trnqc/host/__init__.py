"""What every room needs to know of this machine, each rule once.

memory     how much there is, how much is free (control groups are respected), caches, and sizes in words
threads    how many threads a job takes, and the parts of one call on several threads
blas       the BLAS behind NumPy, and keeping all BLAS libraries to one thread while ours run
arrays     arrays that begin at a cache line, and large ones whose memory is lent again
files      files that are there whole or not at all, locks, checksummed records, the cache directory
rates      how fast this machine is: measured once, kept in the cache directory
progress   bars for what takes longer than two seconds, on a terminal only
"""
