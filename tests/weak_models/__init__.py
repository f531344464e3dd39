"""How far small models get: ``python -m tests.weak_models [--model path.gguf] [--tasks N]``."""
