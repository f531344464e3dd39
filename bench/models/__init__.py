"""How well small models call tools, by tasks over the tools of an office and of a home: ``python -m bench.models``."""
