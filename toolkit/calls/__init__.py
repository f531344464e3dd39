"""The stages of a call: it is prepared, authorized, run, and its output made the result that the model reads."""
