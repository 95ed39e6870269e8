"""The front end of NKI 0.6: an interpreter of a kernel's syntax tree with the rules of the vendor's parser.

    source -> forms of its nodes -> statements, expressions, calls -> functions of the simulator

`interpreter.interpreted` is the entry. What no table of this package has does not exist in the language.
"""
