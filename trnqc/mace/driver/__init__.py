"""Evaluations without Python between the steps: a program of kernel calls, and a driver in C++ that runs it.

plan, convolutions -> order.py: the steps of an evaluation -> sharing.py: less memory -> steps.py: a program
program -> driver.py: the driver, called by Python
        -> prepare.py, folder.py: a folder that C++ programs and LAMMPS open (trnqc_mace.h)

partition.h  ranges of neighbouring atoms               team.h    threads
structure.h  structures in the order of the kernels     memory.h  memory that is kept between evaluations
rows.h       pairs that share weights of edges          folder.h  files and kernels of a prepared model
program.h    the steps, and the memory that they need
"""
