"""The site of the documentation: ``poe docs`` makes the pages that are generated, and builds all of it."""
