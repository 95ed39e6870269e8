"""Which programs a molecule needs for a purpose, before it needs them.

molecule -> one shell of each kind -> classes -> recipes
"""
