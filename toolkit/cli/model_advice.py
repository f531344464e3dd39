"""How a model is best asked for calls, in a line: by what is known of it, and by trying."""

from __future__ import annotations

from pathlib import Path

from toolkit.chat import Provider
from toolkit.cli.models import open_model
from toolkit.cli.progress import Steps
from toolkit.parsing import CallingAdvice, CallingProbe, advise_calling, probe_calling

__all__ = ["describe_advice", "describe_probe", "probe_model"]


def describe_advice(name: str) -> str:
    """Return what the name of a model, or its GGUF file, tells of how it calls.

    Args:
        name: As in ``openai:qwen3:8b`` or ``local:model.gguf``.
    """
    prefix, _, model = name.partition(":")
    if prefix.strip().lower() == "local" and model.strip():
        from toolkit.providers.local.gguf import read_gguf_metadata  # noqa: PLC0415 - few models are files

        path = Path(model.strip())
        return _write_advice(advise_calling(path.stem, read_gguf_metadata(path)))
    return _write_advice(advise_calling(model or name))


def _write_advice(advice: CallingAdvice) -> str:
    parts = [f"best asked {advice.way}: {advice.reason}"]
    family = advice.family
    if family is not None:
        parts.append(f"as text it writes calls like {advice.format}")
        if family.sampling is not None:
            warning = ", and never greedily" if family.sampling.forbids_greedy else ""
            parts.append(f"its makers recommend {family.sampling}{warning}")
        parts.append(f"see {' '.join(family.sources)}")
    return "; ".join(parts)


async def probe_model(provider: Provider, name: str) -> CallingProbe:
    """Ask a model for calls in each way, once."""
    async with open_model(provider, Steps(is_shown=False)) as opened:
        return await probe_calling(opened, model=name)


def describe_probe(probe: CallingProbe) -> str:
    """Return what a model did in each way."""
    ways = {"native": probe.native, "text": probe.text, "guided": probe.guided}
    return "; ".join([f"{way}: {problem or 'works'}" for way, problem in ways.items()])
