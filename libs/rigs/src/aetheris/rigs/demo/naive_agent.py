"""A refund agent as people write it: steps, retries, and a file that says how far it got.

It looks safe. A crash between a call's effect and the next write of the file makes it call again.
Run as `python -m aetheris.rigs.demo.naive_agent PROGRESS_FILE ORDER_ID`.
"""

import json
import smtplib
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import httpx

from aetheris.rigs.demo.servers import TRACKER_LOGIN
from aetheris.rigs.demo.settings import STRIPE_KEY, Places, places

Step = Callable[[Places, Mapping[str, Any]], Any]
TRIES = 3


def lookup_order(where: Places, so_far: Mapping[str, Any]) -> Any:
    """What was paid for the order, and by whom."""
    charges = _stripe(where, "GET", "charges", params={"limit": "100"})["data"]
    return next(one for one in charges if one["metadata"].get("order_id") == so_far["order_id"])


def refund(where: Places, so_far: Mapping[str, Any]) -> Any:
    """Pay it back."""
    charge = so_far["lookup_order"]
    fields = {"charge": charge["id"], "amount": charge["amount"], "metadata[order_id]": so_far["order_id"]}
    return _stripe(where, "POST", "refunds", data=fields)


def send_receipt(where: Places, so_far: Mapping[str, Any]) -> Any:
    """Tell the customer."""
    mail = EmailMessage()
    mail["From"], mail["To"] = "shop@example.org", so_far["lookup_order"]["metadata"]["email"]
    mail["Subject"], mail["X-Order-Id"] = f"Your refund for order {so_far['order_id']}", so_far["order_id"]
    mail.set_content("We have refunded your order.\n")
    with closing(smtplib.SMTP(where.smtp_host, where.smtp_port)) as server:
        server.send_message(mail)
    return True


def file_issue(where: Places, so_far: Mapping[str, Any]) -> Any:
    """Leave a note for bookkeeping."""
    response = httpx.post(
        f"{where.tracker_url}/rest/data/issue",
        json={"title": f"Refund {so_far['order_id']}"},
        auth=TRACKER_LOGIN,
        headers={"X-Requested-With": "rest", "Origin": where.tracker_url},
        trust_env=False,
        timeout=None,  # noqa: S113 - the default of most clients
    )
    return response.raise_for_status().json()


STEPS: tuple[Step, ...] = (lookup_order, refund, send_receipt, file_issue)


def run_agent(progress: Path, order_id: str) -> None:
    """Do what the file doesn't call done, in order."""
    so_far: dict[str, Any] = json.loads(progress.read_text()) if progress.exists() else {"order_id": order_id}
    for step in STEPS:
        if step.__name__ not in so_far:
            so_far[step.__name__] = _with_retries(step, places(), so_far)
            progress.write_text(json.dumps(so_far))


def _with_retries(step: Step, where: Places, so_far: Mapping[str, Any]) -> Any:
    for invocation in range(TRIES):
        try:
            return step(where, so_far)
        except (httpx.HTTPError, smtplib.SMTPException, OSError):
            if invocation == TRIES - 1:
                raise
            time.sleep(0.1 * 2**invocation)
    return None


def _stripe(where: Places, method: str, path: str, **sent: Any) -> Any:
    url = f"{where.stripe_url}/v1/{path}"
    response = httpx.request(method, url, auth=(STRIPE_KEY, ""), trust_env=False, timeout=None, **sent)  # noqa: S113 - as above
    return response.raise_for_status().json()


if __name__ == "__main__":
    run_agent(Path(sys.argv[1]), sys.argv[2])
