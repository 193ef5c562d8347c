"""An MCP server on stdio, which knows nothing of Aetheris."""

from pathlib import Path

from mcp.server import MCPServer

BOOKS = Path(__file__).parent.parent / "outside" / "books"
server = MCPServer("shelf")


@server.tool()
def put_book(title: str, request_id: str = "") -> str:
    """Put a book on the shelf; the same request puts it there once."""
    BOOKS.mkdir(parents=True, exist_ok=True)
    (BOOKS / request_id.replace(":", "_")).write_text(title)
    return f"{title} is on the shelf"


if __name__ == "__main__":
    server.run()
