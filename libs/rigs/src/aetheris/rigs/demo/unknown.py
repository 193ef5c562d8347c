"""`aetheris demo unknown`: answers are lost, and a request comes late; settled by evidence, or by a human."""

import mailbox
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from aetheris.cli.embedded.environment import alone
from aetheris.cli.embedded.ports import free_port
from aetheris.cli.embedded.processes import end, spawn
from aetheris.cli.token_files import APPROVER
from aetheris.rigs.chaos.external_server import ExternalServer, running_external_server, until
from aetheris.rigs.demo import late, naive_loop, servers
from aetheris.rigs.demo.external_systems import answers_as_mail_server
from aetheris.rigs.demo.gate import Gate
from aetheris.rigs.demo.kills import DemoError
from aetheris.rigs.demo.progress import Say
from aetheris.rigs.demo.servers import MissingServerError
from aetheris.rigs.demo.stage import await_status, report, settled_by, verified_with_seal
from aetheris.rigs.demo.system import DemoSystem, check_free, running

CUSTOMER = "ada@example.org"
NAIVE_TEXT, TEXT = "Order o-1001 is on its way", "Order o-1002 is on its way"
MAIL_SENT, CALLED = b"\r\n.\r\n", b"POST /effect"
_EXPECTED = (MissingServerError,)
_START_WITHIN_S, _STOP_WITHIN_S = 60.0, 3.0


@dataclass(frozen=True)
class UnknownCounts:
    """Effects as the external systems have them."""

    mails: int
    calls: int


@dataclass(frozen=True)
class Late:
    """Payments that the loop made, and what came of the one on Aetheris."""

    naive: int
    aetheris: late.Paid

    @property
    def as_promised(self) -> bool:
        """Two by the loop, though it looks first; one on Aetheris."""
        return self.naive == 2 and self.aetheris.as_promised


@dataclass(frozen=True)
class UnknownOutcome:
    """What the demo has shown; `mail_by` and `call_by` say what settled each call."""

    naive: UnknownCounts
    aetheris: UnknownCounts
    mail_by: str
    call_by: str
    waited: bool
    verified: bool
    late: Late

    @property
    def as_promised(self) -> bool:
        """Two of each by the loop, one of each on Aetheris: by a probe, and by a human who was waited for."""
        counts = (self.naive, self.aetheris) == (UnknownCounts(2, 2), UnknownCounts(1, 1))
        settled = (self.mail_by, self.call_by) == ("probe", "human") and self.waited
        return counts and settled and self.verified and self.late.as_promised


@dataclass(frozen=True)
class ExternalSystems:
    """A mail server and a webhook, each behind a gate that can drop a link; and a bank."""

    maildir: Path
    hook: ExternalServer
    bank: ExternalServer
    mail_gate: Gate
    hook_gate: Gate

    def counts(self, text: str) -> UnknownCounts:
        """What arrived of a message."""
        received = mailbox.Maildir(self.maildir, create=False) if self.maildir.exists() else ()
        return UnknownCounts(sum(mail["Subject"] == text for mail in received), self.hook.count(text))

    @property
    def hook_url(self) -> str:
        """The webhook through its gate."""
        return f"http://127.0.0.1:{self.hook_gate.port}"

    def lose_links(self) -> None:
        """The next mail and the next call take effect, and their answers are lost."""
        self.mail_gate.drop_after(MAIL_SENT)
        self.hook_gate.drop_after(CALLED)


def run(data: Path | None, keep: bool) -> int:
    """Run the whole story, print its table; 0 if all is as promised, else 1.

    Args:
        data: folder of the log and the servers' data; None: a temporary one, removed afterwards.
        keep: leave Aetheris running, to look at the job.
    """
    return report(data, lambda folder, say: _play(folder, say, keep=keep), _show, keep=keep, expected=_EXPECTED)


def _play(folder: Path, say: Say, *, keep: bool) -> UnknownOutcome:
    check_free(folder)
    shutil.rmtree(folder / "demo", ignore_errors=True)  # of an earlier run on this folder
    say.headline(
        "External systems: a mail server (aiosmtpd), a webhook and a bank; each takes all it is sent, drops no repeat"
    )
    with _external_systems(folder / "demo") as external:
        naive, paid = _naive(external, say), late.naive(external.bank, say)
        env = {
            "AETHERIS_TOOLS": "aetheris.rigs.demo.messages",
            "AETHERIS_POLICY": str(Path(__file__).with_name("unknown_policy.toml")),
            "DEMO_SMTP": f"127.0.0.1:{external.mail_gate.port}",
            "DEMO_MAILDIR": str(external.maildir),
            "DEMO_WEBHOOK_URL": external.hook_url,
            "DEMO_BANK_URL": external.bank.url,
        }
        say.headline("The same three calls on Aetheris")
        say.step("starting Kafka, Valkey and the six services (the first time, Kafka is downloaded)")
        with running(folder, env, say, keep=keep) as system:
            return _on_aetheris(system, external, naive, paid, say=say)


def _naive(external: ExternalSystems, say: Say) -> UnknownCounts:
    say.headline("A naive loop: on an error, try again")
    external.lose_links()
    mails = naive_loop.mail("127.0.0.1", external.mail_gate.port, CUSTOMER, NAIVE_TEXT)
    say.kill("the mail server accepts the mail, and the link drops before its answer arrives")
    calls = naive_loop.webhook(external.hook_url, NAIVE_TEXT)
    say.kill("the webhook takes the call, and the link drops")
    counts = external.counts(NAIVE_TEXT)
    say.step(f"it tried {mails} and {calls} times, and says it is done. There are {_words(counts)}")
    return counts


def _on_aetheris(
    system: DemoSystem, external: ExternalSystems, naive: UnknownCounts, paid: int, *, say: Say
) -> UnknownOutcome:
    external.lose_links()
    mail = {"id": "mail", "tool": "send_mail", "args": {"to": CUSTOMER, "text": TEXT}}
    call = {"id": "call", "tool": "call_webhook", "args": {"text": TEXT}, "depends_on": ["mail"]}
    job_id = system.submit({"nodes": [mail, call]}, f"demo-{uuid4()}")
    say.step(f"submitted as job {job_id}; the same two links drop")
    waited = _await_human(system, job_id)
    for event in system.client.events(job_id):
        if event.type in _TOLD:
            say.detail(f"{event.data['node_id']}: {_TOLD[event.type]}")
    say.step(f"the job waits: there are {_words(external.counts(TEXT))}")
    say.detail("the webhook can't be asked, and who calls it again may act twice: nothing here decides that")
    lines = external.hook.count(TEXT)
    say.step(f"a human asks whoever runs the webhook: its book has {lines} line(s) of that")
    _resolve(system, job_id, f"the webhook's book has {lines} line(s) of it")
    say.step(f"aetheris resolve {job_id} --node call --happened --evidence … --as {APPROVER}")
    await_status(system, job_id, "completed")
    counts = external.counts(TEXT)
    say.step(f"the job has completed. There are {_words(counts)}")
    mail_by, call_by = settled_by(system, job_id, "mail"), settled_by(system, job_id, "call")
    verified = bool(verified_with_seal(system, job_id)["ok"])
    say.headline("A payment that is slow on its way, and an executor that is killed meanwhile")
    paid_late = Late(paid, late.on_aetheris(system, external.bank, say))
    return UnknownOutcome(naive, counts, mail_by, call_by, waited, verified, paid_late)


_TOLD = {
    "invocation_in_doubt": "in doubt: nobody here knows whether it took effect",
    "invocation_probed": "its outside is asked by the key of the call",
    "tool_invocation_finished": "settled by what was found",
    "invocation_parked": "left to a human",
}


def _await_human(system: DemoSystem, job_id: str) -> bool:
    """Whether the step whose answer was lost is what waits. Raises: DemoError: the job does not wait in time."""
    job = await_status(system, job_id, "waiting")
    return any(step.node_id == "call" and step.state == "waiting" for step in job.steps)


def _resolve(system: DemoSystem, job_id: str, evidence: str) -> None:
    """By the command that a human has. Raises: DemoError: it was not taken."""
    argv = [sys.executable, "-m", "aetheris.cli", "resolve", job_id, "--node", "call", "--happened"]
    settled = [*argv, "--evidence", evidence, "--as", APPROVER, "--data", str(system.data)]
    with alone({}):
        ran = subprocess.run(settled, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise DemoError(f"aetheris resolve: {ran.stderr.strip()}")


@contextmanager
def _external_systems(folder: Path) -> Generator[ExternalSystems]:
    maildir, port = folder / "maildir", free_port()
    server = spawn(servers.mail(port, maildir), log=folder / "smtp.log")
    try:
        until(lambda: answers_as_mail_server(port), _START_WITHIN_S)
        with (
            running_external_server(folder / "webhook") as hook,
            running_external_server(folder / "bank") as bank,
            Gate(port) as mail_gate,
            Gate(int(hook.url.rpartition(":")[2])) as hook_gate,
        ):
            yield ExternalSystems(maildir, hook, bank, mail_gate, hook_gate)
    finally:
        end(server, _STOP_WITHIN_S)


def _show(outcome: UnknownOutcome, say: Say) -> None:
    paid = outcome.late.aetheris
    rows = [
        ("mails in the mailbox", str(outcome.naive.mails), str(outcome.aetheris.mails)),
        ("calls in the webhook's book", str(outcome.naive.calls), str(outcome.aetheris.calls)),
        ("payments in the bank's book", str(outcome.late.naive), str(paid.payments)),
        ("the mail was settled by", "trying again", outcome.mail_by),
        ("the webhook's call was settled by", "trying again", outcome.call_by),
        ("the payment was settled by", "trying again", f"{paid.by} ({', '.join(paid.answers)})"),
        ("verify", "nothing to verify", "holds" if outcome.verified and paid.verified else "fails"),
    ]
    say.table(("counted at the other side", "naive loop", "Aetheris"), rows)


def _words(counts: UnknownCounts) -> str:
    return f"{counts.mails} mail(s) in the mailbox, {counts.calls} call(s) in the webhook's book"
