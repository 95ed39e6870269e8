"""The pair step: blocks of factors -> a backend -> pair energies, with the error of a reduced precision measured."""
