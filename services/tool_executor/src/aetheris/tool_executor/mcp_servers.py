"""The tools of MCP servers, for as long as this executor runs (docs/mcp.md)."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import structlog

from aetheris.runtime.base.refusal import StartRefused
from aetheris.sdk.tools import AnyTool
from aetheris.tool_executor.secret_store import SecretRefused, Secrets, SecretUnreadable

_log = structlog.get_logger(__name__)


class McpServersRefused(StartRefused):
    """The file that AETHERIS_MCP names can't be used: mend it, then start again."""

    code = "mcp_servers_refused"


@asynccontextmanager
async def mcp_tools(path: Path | None, secrets: Secrets) -> AsyncGenerator[Sequence[AnyTool]]:
    """The tools of every server of the file that can be reached; None: there are none.

    Raises:
        McpServersRefused: naming the file and the field, or the secret.
    """
    if path is None:
        yield ()
        return
    # the SDK takes a second and 30 MB
    from aetheris.sdk.toolkits import mcp  # noqa: PLC0415

    async with AsyncExitStack() as closing:
        try:
            found = await closing.enter_async_context(
                mcp.discovered(mcp.read_servers(path), secrets.of_settings, mcp.Pins.beside(path))
            )
        except (mcp.ServersFileInvalid, SecretRefused, SecretUnreadable) as refused:
            raise McpServersRefused(str(refused)) from None
        for name, reason in found.left_out.items():
            _log.error("left out of the tools", server_or_tool=name, reason=reason)
        yield found.tools
