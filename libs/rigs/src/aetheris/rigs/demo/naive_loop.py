"""What people write around a call that may fail: try again."""

import smtplib
import time
from collections.abc import Callable
from contextlib import closing

import httpx

from aetheris.rigs.demo.messages import letter, payload

TRIES = 3


def mail(host: str, port: int, to: str, text: str) -> int:
    """Send a mail, however often it takes; gives the tries."""

    def once() -> None:
        with closing(smtplib.SMTP(host, port)) as server:
            server.send_message(letter(to, text))

    return _until_it_works(once)


def webhook(url: str, text: str) -> int:
    """Call the webhook, however often it takes; gives the tries."""

    def once() -> None:
        httpx.post(f"{url}/effect", json=payload(text), trust_env=False).raise_for_status()

    return _until_it_works(once)


def _until_it_works(call: Callable[[], None]) -> int:
    for tried in range(1, TRIES + 1):
        try:
            call()
        except (httpx.HTTPError, smtplib.SMTPException, OSError):
            if tried == TRIES:
                raise
            time.sleep(0.1 * 2**tried)
        else:
            return tried
    raise AssertionError("unreachable")
