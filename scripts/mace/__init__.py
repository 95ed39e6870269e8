"""Whole MACE models beside mace-torch and symmetrix-xl."""
