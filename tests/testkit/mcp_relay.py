"""A relay to an MCP server on stdio, which it leaves as it is: `python -m tests.testkit.mcp_relay FOLDER COMMAND…`.

Each call is appended to FOLDER/calls.jsonl as {"tool", "key"} when the server has answered it; while FOLDER/hold
exists, answers of calls are held back.
"""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

LOG = "calls.jsonl"


def calls(folder: Path, key: str | None = None) -> list[dict[str, str]]:
    """The calls that a server has executed."""
    path = folder / LOG
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [one for one in found if key in (None, one["key"])]


def _relay(folder: Path, command: list[str]) -> None:
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    asked: dict[Any, dict[str, str]] = {}
    threading.Thread(target=_requests, args=(server, asked), daemon=True).start()
    assert server.stdout is not None
    for line in server.stdout:
        call = asked.pop(json.loads(line).get("id"), None)
        if call is not None:
            with (folder / LOG).open("a") as log:
                log.write(json.dumps(call) + "\n")
            while (folder / "hold").exists():
                time.sleep(0.005)
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


def _requests(server: "subprocess.Popen[bytes]", asked: dict[Any, dict[str, str]]) -> None:
    assert server.stdin is not None
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if message.get("method") == "tools/call":
            params = message["params"]
            asked[message["id"]] = {"tool": params["name"], "key": params["_meta"]["io.aetheris/external-key"]}
        server.stdin.write(line)
        server.stdin.flush()
    server.stdin.close()


if __name__ == "__main__":
    _relay(Path(sys.argv[1]), sys.argv[2:])
