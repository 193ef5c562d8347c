"""The external systems of the refund demo: three real servers, each a process, and what reached them, counted there.

with OutsideWorld(folder) as world:
    world.place_order("o-1001", 4200, "ada@example.org")
    …
    world.counts("o-1001")
"""

import mailbox
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from aetheris.cli.embedded.ports import free_port
from aetheris.cli.embedded.processes import end, spawn
from aetheris.rigs.demo import servers
from aetheris.rigs.demo.settings import STRIPE_KEY, Places

START_WITHIN_S = 60.0
STOP_WITHIN_S = 3.0
_PAGE = 100
_LOOK_EVERY_S = 0.01


class ExternalSystemError(Exception):
    """An external system can't be started or asked; the message names the server's log."""


@dataclass(frozen=True)
class EffectCounts:
    """Effects as the external systems have them."""

    refunds: int
    mails: int
    issues: int


class DemoExternalSystems:
    """A payment service, a mail server and an issue tracker, with their data in one folder.

    Its servers end with the thread that entered it, even where that one is killed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._maildir = folder / "maildir"
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._stack = ExitStack()
        self.ports: dict[str, int] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._http = stack.enter_context(httpx.Client(trust_env=False, timeout=30))
            self._spawn(stack, "stripe", servers.stripe)
            self._spawn(stack, "smtp", lambda port: servers.mail(port, self._maildir))
            self._spawn(stack, "tracker", lambda port: servers.tracker(port, self._folder / "tracker"))
            for name, answers in self._answering().items():
                self._wait(name, answers)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def places(self) -> Places:
        """Where the servers are."""
        stripe, smtp, tracker = (self.ports[name] for name in ("stripe", "smtp", "tracker"))
        return Places(f"http://127.0.0.1:{stripe}", "127.0.0.1", smtp, self._maildir, f"http://127.0.0.1:{tracker}")

    @property
    def env(self) -> dict[str, str]:
        """What the demo's tools and the naive agent need to find the servers."""
        return self.places.env()

    @property
    def pids(self) -> dict[str, int]:
        """The process of each server."""
        return {name: child.pid for name, child in self._children.items()}

    def place_order(self, order_id: str, amount: int, email: str) -> None:
        """Let a customer pay for an order, in cents, so that there is something to refund."""
        card = {"number": "4242424242424242", "exp_month": "12", "exp_year": "2030", "cvc": "123"}
        token = self._stripe("POST", "tokens", {f"card[{field}]": value for field, value in card.items()})
        customer = self._stripe("POST", "customers", {"email": email, "source": token["id"]})
        charge = {"amount": str(amount), "currency": "eur", "customer": customer["id"]}
        about = {"metadata[order_id]": order_id, "metadata[email]": email}
        self._stripe("POST", "charges", charge | about)

    def counts(self, order_id: str | None = None) -> EffectCounts:
        """What the servers have of one order, or of all.

        Raises:
            OutsideError: one of them can't be asked.
        """
        try:
            return EffectCounts(self._refunds(order_id), self._mails(order_id), self._issues(order_id))
        except httpx.HTTPError as error:
            raise ExternalSystemError(f"{type(error).__name__}: see the logs in {self._folder}") from error

    def _refunds(self, order_id: str | None) -> int:
        found, after = 0, {}
        while True:
            page = self._stripe("GET", "refunds", {"limit": str(_PAGE), **after})
            found += sum(order_id in (None, one["metadata"].get("order_id")) for one in page["data"])
            if not page["has_more"]:
                return found
            after = {"starting_after": page["data"][-1]["id"]}

    def _mails(self, order_id: str | None) -> int:
        if not self._maildir.exists():
            return 0
        received = mailbox.Maildir(self._maildir, create=False)
        return sum(order_id in (None, mail.get("X-Order-Id")) for mail in received)

    def _issues(self, order_id: str | None) -> int:
        url = f"{self.places.tracker_url}/rest/data/issue"
        response = self._http.get(url, params={"@fields": "title"}, auth=servers.TRACKER_LOGIN)
        response.raise_for_status()
        titles = [str(issue["title"]) for issue in response.json()["data"]["collection"]]
        return sum(order_id is None or order_id in title.split() for title in titles)

    def _stripe(self, method: str, path: str, fields: Mapping[str, str]) -> Any:
        sent: dict[str, Any] = {"params": fields} if method == "GET" else {"data": fields}
        url = f"{self.places.stripe_url}/v1/{path}"
        response = self._http.request(method, url, auth=(STRIPE_KEY, ""), **sent)
        response.raise_for_status()
        return response.json()

    def _spawn(self, stack: ExitStack, name: str, argv: Callable[[int], Any]) -> None:
        port = free_port(taken=set(self.ports.values()))
        child = spawn(argv(port), log=self._folder / f"{name}.log")
        stack.callback(end, child, STOP_WITHIN_S)
        self.ports[name], self._children[name] = port, child

    def _answering(self) -> dict[str, Callable[[], bool]]:
        return {
            "stripe": lambda: self._stripe("GET", "refunds", {})["data"] == [],
            "smtp": lambda: answers_as_mail_server(self.ports["smtp"]),
            "tracker": lambda: self._issues(None) >= 0,
        }

    def _wait(self, name: str, answers: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_WITHIN_S
        while not _quietly(answers):
            if self._children[name].poll() is not None or time.monotonic() > deadline:
                raise ExternalSystemError(f"{name} did not start: see {self._folder / f'{name}.log'}")
            time.sleep(_LOOK_EVERY_S)


def _quietly(answers: Callable[[], bool]) -> bool:
    try:
        return answers()
    except (OSError, httpx.HTTPError):
        return False


def answers_as_mail_server(port: int) -> bool:
    """Whether a mail server greets on a port of this machine."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            return connection.recv(3) == b"220"
    except OSError:
        return False
