"""An approver's signature: what is signed is shown and written down, and `ssh-keygen` signs it."""

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from aetheris.cli.console import CommandError, Exit, progress
from aetheris.cli.inputs import read_bytes
from aetheris.protocol.api import Action
from aetheris.protocol.base.canonical import InvalidArgs
from aetheris.protocol.base.keys import args_hash
from aetheris.protocol.base.sshsig import MAX_ARMORED
from aetheris.protocol.plan.forms import AnswerRefused, answers
from aetheris.protocol.planning.approval_text import NAMESPACE, ApprovalText, SignatureRefused, SignedRequest
from aetheris.protocol.planning.approvals import fields_in, job_of
from aetheris.sdk.client import HumanRequest

_KEYGEN = "ssh-keygen"


def text(
    request_id: str, asked: HumanRequest, action: Action, edits: Mapping[str, Any] | None, *, break_glass: bool
) -> bytes:
    """What is signed of an answer, to the byte; the hash of the arguments is made here, of those that are shown.

    Raises:
        CommandError: its rule asks for no signature, or the gateway's word on the request or the arguments is not so.
    """
    found = asked.to_sign
    if found is None:
        raise CommandError(Exit.BAD_INPUT, "not_signable", "the rule that asks for this wants no signature")
    if found.request != request_id or found.job != job_of(request_id):
        raise CommandError(
            Exit.FAILED, "request_differs", "the gateway names another request to sign than was asked about"
        )
    shown = _shown(asked)
    if _hash(shown) != found.args_hash:
        message = "the arguments that are shown are not those that would be signed: they are too large, or it is a lie"
        raise CommandError(Exit.FAILED, "arguments_differ", message)
    request = SignedRequest(**found.model_dump(exclude={"approver", "passkeys"}))
    data_hash = args_hash(arguments(asked, edits)) if action == "edit" else None
    said = ApprovalText(
        asked=request, approver=found.approver, decision=action, data_hash=data_hash, break_glass=break_glass
    )
    try:
        return said.encoded()
    except SignatureRefused as error:
        raise CommandError(Exit.FAILED, "not_signable", str(error)) from None


def arguments(asked: HumanRequest, edits: Mapping[str, Any] | None) -> dict[str, Any]:
    """Those that the answer is about: that are shown, with what an edit changes.

    Raises:
        CommandError: it changes what can't be changed.
    """
    try:
        changes = answers(fields_in(asked.request), edits, complete=False) if edits is not None else {}
    except AnswerRefused as error:
        raise CommandError(Exit.BAD_INPUT, error.code, f"{error.field}: {error.rule}", field="--edit") from None
    return _shown(asked) | changes


def signed(message: bytes, key: Path) -> str:
    """The signature of a text by a private key, or by the agent's where `key` is a public one; asks on the terminal.

    Raises:
        CommandError: there is no ssh-keygen, or it did not sign.
    """
    for line in message.decode().splitlines():
        progress("signs", line)
    with tempfile.TemporaryDirectory(prefix="aetheris-") as folder:
        file = Path(folder) / "approval"
        file.write_bytes(message)
        argv = [_KEYGEN, "-Y", "sign", "-n", NAMESPACE, "-f", str(key.expanduser()), str(file)]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            rule = f"there is no {_KEYGEN} here (OpenSSH 8.1 or newer): sign elsewhere what --text prints"
            raise CommandError(Exit.FAILED, "no_ssh_keygen", rule) from None
        if done.returncode or not file.with_suffix(".sig").exists():
            why = done.stderr.strip().splitlines()[-1:] or ["it says nothing"]
            raise CommandError(Exit.FAILED, "not_signed", f"{_KEYGEN} did not sign with {key}: {why[0]}")
        return file.with_suffix(".sig").read_text()


def read(path: Path) -> str:
    """A signature that another tool made; raises CommandError."""
    content = read_bytes(path)
    if len(content) > MAX_ARMORED or not content.isascii():
        raise CommandError(Exit.BAD_INPUT, "bad_signature", f"{path} holds no SSH signature", file=str(path))
    return content.decode()


def _hash(arguments: Mapping[str, Any]) -> str | None:
    try:
        return args_hash(arguments)
    except InvalidArgs:
        return None


def _shown(asked: HumanRequest) -> dict[str, Any]:
    context: Any = asked.request.get("context")
    found: Any = cast("Mapping[str, Any]", context).get("arguments") if isinstance(context, Mapping) else None
    return dict(cast("Mapping[str, Any]", found)) if isinstance(found, Mapping) else {}
