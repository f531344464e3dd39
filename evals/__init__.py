"""How far small models get: ``python -m evals [--model path.gguf] [--tasks N]``."""
