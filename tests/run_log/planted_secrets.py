"""Thirty kinds of secrets, each as it comes up in what people, models and tools say."""

from base64 import b64encode
from dataclasses import dataclass


@dataclass(frozen=True)
class Planted:
    """A secret in a text.

    Args:
        kind: What it is.
        text: What is said.
        secret: What of it must not be seen.
    """

    kind: str
    text: str
    secret: str


_BODY = "a1B2" * 9


def _said(kind: str, secret: str, text: str = "it is {} indeed") -> Planted:
    return Planted(kind, text.replace("{}", secret), secret)


PLANTED = (
    _said("OpenAI", "sk-proj-" + _BODY),
    _said("Anthropic", "sk-ant-api03-" + _BODY),
    _said("Groq", "gsk_" + _BODY),
    _said("Hugging Face", "hf_" + _BODY),
    _said("Replicate", "r8_" + _BODY),
    _said("xAI", "xai-" + _BODY),
    _said("Perplexity", "pplx-" + _BODY),
    _said("NVIDIA", "nvapi-" + _BODY),
    _said("GitLab", "glpat-" + _BODY),
    _said("GitHub, classic", "ghp_" + _BODY),
    _said("GitHub, fine-grained", "github_pat_11AB_" + _BODY),
    _said("Slack", "xoxb-" + "1234567890-" + _BODY),
    _said("Amazon", "AKIA" + "A1B2" * 4),
    _said("Amazon, temporary", "ASIA" + "A1B2" * 4),
    _said("Google", "AIza" + _BODY),
    _said("Google, new", "AQ.Ab8" + _BODY),
    _said("Google, OAuth", "ya29." + _BODY),
    _said("Stripe", "sk_live_" + _BODY),
    _said("a web token", "eyJ" + _BODY + ".eyJ" + _BODY + "." + _BODY),
    _said("a private key", "MIIEvQIBADANBg" + _BODY, "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----"),
    _said("a bearer", _BODY, "Authorization: Bearer {}"),
    _said("a login in Base64", b64encode(b"ada:pa55w0rd-1").decode(), "Authorization: Basic {}"),
    _said("a login in an address", "ada:pa55w0rd-2", "postgres://{}@db.example/x"),
    _said("a signature in an address", "f00dfeed77", "https://b.example/o?X-Amz-Signature={}&p=2"),
    _said("a token in an address", "t0k3n-in-query", "https://b.example/o?access_token={}"),
    _said("a password in a setting", "hunter-77-two", "password={}"),
    _said("a password in YAML", "hunter-88-two", "db:\n  password: '{}'\n"),
    _said("a secret in JSON", "client-s3cr3t-1", 'the answer was {"client_secret": "{}"}'),
    _said("a variable of the environment", "env-k3y-99", "export AWS_SECRET_ACCESS_KEY={}"),
    _said("a session in a header", "s3ss10n-12", "X-Session-Token: {}"),
)
