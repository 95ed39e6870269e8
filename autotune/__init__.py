"""Finds the compile-time constants with which a kernel runs fastest, and writes them down.

    kernel, shape  --spaces.space--->  feasible points         rules of the kernel and the chip cut the others
    points         --search.*------->  proposals               one at a time, each answered with its cost
    proposal       --measure.measure-> trial                   a child process (candidate.py) compares, then times
    trials         --journal.opened->  a file                  a killed run continues where it stopped
    best trial     --runner.tune---->  a record                which launches read (`trnqc.tuning`)

The searches know no kernel, and the kernels know no clock. Of the library only the command line imports this package.
"""
