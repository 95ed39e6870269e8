"""Find the compile-time constants with which a kernel runs fastest, and record them.

    kernel, shape  --spaces.space--->  feasible points         those that obey the rules of the kernel and the chip
    points         --search.*------->  proposals               one at a time; the cost of each is sent back
    proposal       --measure.measure-> trial                   a child process (candidate.py) checks and times it
    trials         --journal.opened->  a file                  from which a killed run continues
    best trial     --runner.tune---->  a record                which launches read (`trnqc.tuning`)

The searches do not depend on kernels, and the kernels do not depend on timing. In the library, only the command line
imports this package.
"""
