"""Tools of MCP servers, unchanged: discovered, pinned by their schemas, called under the ledger (docs/mcp.md)."""

from aetheris.sdk.toolkits.mcp.discovery import Discovered, discovered
from aetheris.sdk.toolkits.mcp.servers import ServersFileInvalid, read_servers

__all__ = ["Discovered", "ServersFileInvalid", "discovered", "read_servers"]
