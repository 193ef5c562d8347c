"""Where the demo's outside is; the naive agent and the tools read the same variables."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

STRIPE_KEY = "sk_test_demo"  # localstripe takes any key of this form

SETTLES_WITHIN_S = 2.0
"""Of all the demo's tools: the servers are on this machine, and a request that was sent is with them at once."""

UNDER_WAY_S = 10.0
"""Of a payment, whose way is slow: long enough for the demo to let go what it holds back, once the bank was asked."""


@dataclass(frozen=True)
class Places:
    """The addresses of the external servers, and the Maildir that the mail server writes."""

    stripe_url: str
    smtp_host: str
    smtp_port: int
    maildir: Path
    tracker_url: str

    def env(self) -> dict[str, str]:
        """As environment variables."""
        return {
            "DEMO_STRIPE_URL": self.stripe_url,
            "DEMO_SMTP": f"{self.smtp_host}:{self.smtp_port}",
            "DEMO_MAILDIR": str(self.maildir),
            "DEMO_TRACKER_URL": self.tracker_url,
        }


def places(env: Mapping[str, str] = os.environ) -> Places:
    """What the environment says.

    Raises:
        KeyError: naming the variable that isn't set.
    """
    host, _, port = env["DEMO_SMTP"].rpartition(":")
    maildir = Path(env["DEMO_MAILDIR"])
    return Places(env["DEMO_STRIPE_URL"], host, int(port), maildir, env["DEMO_TRACKER_URL"])
