"""What talks to models, one package each; `provider_for` imports the one that is asked for, none is loaded before.

`toolkit.providers.openai` speaks to OpenAI and every server that speaks its formats (extra ``openai``),
`toolkit.providers.anthropic` to Anthropic (``anthropic``), `toolkit.providers.google` to Gemini (``google``);
`toolkit.providers.local` runs a model on this machine (``local``).
"""

from toolkit.providers.catalogue import ClosableProvider, provider_for

__all__ = ["ClosableProvider", "provider_for"]
