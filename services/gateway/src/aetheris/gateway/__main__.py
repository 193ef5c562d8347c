"""`python -m aetheris.gateway`."""

import sys

import aetheris.http_server.lean  # noqa: F401  # pyright: ignore[reportUnusedImport]  before all others
from aetheris.gateway.app import serve
from aetheris.gateway.settings import GatewaySettings
from aetheris.runtime.process import lifecycle
from aetheris.runtime.process.settings import load

if __name__ == "__main__":
    sys.exit(lifecycle.run(lambda stop: serve(load(GatewaySettings), stop), service="gateway"))
