"""Finds the compile-time constants with which a kernel runs fastest, and writes them down.

    kernel, shape  --spaces.space-->  feasible points        cut by the rules of the chip before anything is timed
    points         --search.*----->   proposals, one at a time; each is sent its cost
    proposal       --candidate---->   a child process: result checked against the reference, then timed
    trials         --journal------>   on disk as they come; a killed run goes on where it stopped
    best trial     --runner.tune-->   a record that launches read (`trnqc.tuning`)

The searches know no kernel, the kernels know no clock. The library never imports this package.
"""
