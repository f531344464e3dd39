"""One tool, many tools, one call."""
