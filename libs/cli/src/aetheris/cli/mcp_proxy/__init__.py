"""In front of an MCP server: its tools' calls go through the ledger, all else goes through as it is (docs/mcp.md)."""
