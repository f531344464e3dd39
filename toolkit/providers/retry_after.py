"""The seconds that a server asks to wait before the next request: Retry-After, and what stands in its place."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from toolkit.providers.json_values import as_items, as_text

__all__ = ["find_retry_after", "retry_after_of"]


def find_retry_after(headers: Mapping[str, str], details: Mapping[str, Any]) -> float | None:
    """Return the seconds that an answer asks to wait, by its headers or else by its body; None where it doesn't."""
    asked = retry_after_of(headers)
    return _read_retry_delay(details) if asked is None else asked


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the server asks to wait, from milliseconds, seconds or a date; None where it doesn't."""
    for header, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(header, "")) / unit
        except ValueError:
            continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _read_retry_delay(details: Mapping[str, Any]) -> float | None:
    """Return the seconds that Google asks to wait: it says so in the body, as in ``34.5s``."""
    for detail in as_items(details.get("details")):
        try:
            return float(as_text(detail.get("retryDelay")).removesuffix("s"))
        except ValueError:
            continue
    return None
