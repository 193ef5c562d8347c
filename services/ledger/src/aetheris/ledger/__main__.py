"""`python -m aetheris.ledger`."""

import sys

import aetheris.runtime.process.lean  # noqa: F401  # pyright: ignore[reportUnusedImport]  before all others
from aetheris.ledger.app import serve
from aetheris.ledger.settings import LedgerSettings
from aetheris.runtime.process import lifecycle
from aetheris.runtime.process.policy_file import load

if __name__ == "__main__":
    settings = lifecycle.settings_for(LedgerSettings, service="ledger")
    sys.exit(lifecycle.run(lambda stop: serve(settings, load(settings.policy), stop), service="ledger"))
