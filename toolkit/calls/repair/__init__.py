"""Repair of names and arguments, where what a model meant is no guess."""
