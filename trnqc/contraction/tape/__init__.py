"""Plans of many small steps as a tape: a list of instructions that one compiled function executes.

loops.py         the loops of one step, and their order
instructions.py  plan -> instructions over strided arrays
machine.py       a run of a tape by the function of `backends.cpu.tape`
"""
