"""The loop between a model and its tools: one machine, and views of it."""
