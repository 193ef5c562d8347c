"""A tool whose author has instrumented httpx, by OpenTelemetry's own package; so are those loaded beside it."""

import os

import httpx
from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor

from aetheris.sdk import ToolContext, tool

HTTPXClientInstrumentor().instrument()


@tool("look_up", effect_class="pure")
def look_up(ctx: ToolContext, tag: str) -> int:  # noqa: ARG001  it passes nothing on: its client does
    """Reads, in a thread, and passes nothing of ours on by itself."""
    return httpx.get(f"{os.environ['OUTSIDE_URL']}/read", params={"tag": tag}, trust_env=False).status_code
