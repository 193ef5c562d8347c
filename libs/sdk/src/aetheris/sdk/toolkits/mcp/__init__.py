"""Tools of MCP servers, unchanged: discovered, pinned by their schemas, called under the ledger (docs/mcp.md)."""

from aetheris.sdk.toolkits.mcp.discovery import Discovered, discovered, listed
from aetheris.sdk.toolkits.mcp.pins import Pins, fingerprint
from aetheris.sdk.toolkits.mcp.servers import ServersFileInvalid, read_servers

__all__ = ["Discovered", "Pins", "ServersFileInvalid", "discovered", "fingerprint", "listed", "read_servers"]
