"""What talks to models, one package each; import the one you need, none is loaded from here.

`toolkit.providers.openai` speaks to OpenAI and every server that speaks its chat completions (extra ``openai``);
`toolkit.providers.local` runs a model on this machine (extra ``local``).
"""
