"""What people write around a call that may fail: try again."""

import smtplib
import time
from collections.abc import Callable
from contextlib import closing

import httpx

from aetheris.rigs.demo.messages import letter, payload, payment
from aetheris.rigs.demo.paid import payment_of

TRIES = 3
PATIENCE_S = 1.0


def mail(host: str, port: int, to: str, text: str) -> int:
    """Send a mail, however often it takes; gives the tries."""

    def once() -> None:
        with closing(smtplib.SMTP(host, port)) as server:
            server.send_message(letter(text), to_addrs=[to])

    return _until_it_works(once)


def webhook(url: str, text: str) -> int:
    """Call the webhook, however often it takes; gives the tries."""

    def once() -> None:
        httpx.post(f"{url}/effect", json=payload(text), trust_env=False).raise_for_status()

    return _until_it_works(once)


def pay(url: str, order: str) -> int:
    """Pay unless it is paid already, however often it takes; gives the tries. The way of the first is slow."""
    slow = iter(({"hold": order},))

    def once() -> None:
        book = httpx.get(f"{url}/effects", trust_env=False).raise_for_status().json()
        if payment_of(order) not in {line["tag"] for line in book}:
            asked = f"{url}/effect"
            httpx.post(asked, json=payment(order, ""), params=next(slow, {}), trust_env=False, timeout=PATIENCE_S)

    return _until_it_works(once)


def _until_it_works(call: Callable[[], None]) -> int:
    for invocation in range(1, TRIES + 1):
        try:
            call()
        except (httpx.HTTPError, smtplib.SMTPException, OSError):
            if invocation == TRIES:
                raise
            time.sleep(0.1 * 2**invocation)
        else:
            return invocation
    raise AssertionError("unreachable")
