"""What every room needs to know of this machine. Each rule is stated once.

memory     installed and available memory (control groups are respected), and sizes in words
threads    the number of threads of a call, and work on several threads
blas       the BLAS behind NumPy, and limits of the threads of all BLAS libraries
arrays     arrays that begin at a cache line, and large arrays whose memory is reused
files      files that are replaced whole or not at all, locks, checksummed records, the cache directory
rates      measured speeds of this machine, stored for later processes
progress   progress bars for stages that take longer than two seconds, on a terminal only
waiting    the line that tells users that they wait for compilers
"""
