"""How fast toolkit is, as multiples of a loop written by hand: ``python -m bench``."""
