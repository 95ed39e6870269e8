"""Plans of many small steps as a tape: a list of instructions that one compiled function executes.

loops.py         the loops of one step, and their order
steps.py         one step as instructions
instructions.py  plan -> instructions over strided arrays
nests.py         loops over slices -> instructions, where their steps are small
machine.py       runs of tapes by the function of `backends.cpu.tape`
"""
