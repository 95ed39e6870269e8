"""Evaluations without Python between the steps: a program of kernel calls, and a driver in C++ that runs it.

plan, convolutions -> order.py: the steps of an evaluation -> steps.py: a program
program -> driver.py: the driver, called by Python
        -> prepare.py, folder.py: a folder that C++ programs and LAMMPS open (trnqc_mace.h)

structure.h  structures in the order of the kernels     team.h    threads
program.h    the steps, and the memory that they need   folder.h  files and kernels of a prepared model
"""
