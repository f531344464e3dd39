"""The best way to turn Python functions into tools that language models call."""
