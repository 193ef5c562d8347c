"""The refund demo's four tools; load as `aetheris.rigs.demo.tools` (docs/demo.md).

Environment: DEMO_STRIPE_URL, DEMO_SMTP (host:port), DEMO_MAILDIR, DEMO_TRACKER_URL. Amounts are in cents. Ids that
external systems make up are external ids and no part of a result, so the same call has the same result in every run.
"""

from email.message import EmailMessage
from typing import Any

import httpx

from aetheris.rigs.demo.servers import TRACKER_LOGIN
from aetheris.rigs.demo.settings import SETTLES_WITHIN_S, STRIPE_KEY, places
from aetheris.sdk import (
    Failed,
    Found,
    NotExecuted,
    NotFound,
    ProbeContext,
    Result,
    StateChange,
    ToolContext,
    tool,
)
from aetheris.sdk.outcomes import Confirmed, Drifted, Verdict
from aetheris.sdk.toolkits import http, smtp

_PAGE = 100


@tool(effect_class="pure")
async def lookup_order(ctx: ToolContext, order_id: str) -> dict[str, Any]:
    """What was paid for an order, and by whom."""
    charge = await _charge_of(ctx, order_id)
    return {
        "order_id": order_id,
        "amount": charge["amount"],
        "currency": charge["currency"],
        "email": charge["metadata"]["email"],
    }


@tool(effect_class="probeable", irreversible=True, settles_within_s=SETTLES_WITHIN_S)
async def refund(ctx: ToolContext, order_id: str, amount: int) -> Result:
    """Pay back what was paid for an order, or a part of it."""
    charge = await _before_sending(ctx, order_id)
    about = {"metadata[external_key]": ctx.external_key, "metadata[order_id]": order_id}
    fields = {"charge": charge["id"], "amount": str(amount), **about}
    response = await http.call(
        ctx, "POST", _stripe("refunds"), data=fields, auth=(STRIPE_KEY, ""), transport=http.direct()
    )
    made = response.json()
    change = StateChange("refund", made["id"], "create", external_ref=ctx.external_key)
    return Result(_refunded(made), made["id"], [change])


@refund.probe
async def find_refund(external_key: str, ctx: ProbeContext) -> Found | NotFound:
    """Look through the payment service's refunds for the key in their metadata."""
    refunds = await _all_of(ctx, "refunds")
    made = [one for one in refunds if one["metadata"].get("external_key") == external_key]
    evidence = (f"payment service: {len(made)} of {len(refunds)} refunds carry the key",)
    return Found(_refunded(made[0]), made[0]["id"], evidence) if made else NotFound(evidence)


@tool(effect_class="probeable", irreversible=True, settles_within_s=SETTLES_WITHIN_S)
def send_receipt(ctx: ToolContext, to: str, order_id: str, amount: int, currency: str = "eur") -> Result:
    """Mail the customer that the money is on its way."""
    mail = EmailMessage()
    mail["From"], mail["X-Order-Id"] = "shop@example.org", order_id
    mail["Subject"] = f"Your refund for order {order_id}"
    mail.set_content(f"We have refunded {amount / 100:.2f} {currency.upper()}.\n")
    where = places()
    sent = smtp.send_now(ctx, smtp.SmtpServer(where.smtp_host, where.smtp_port), mail, to)
    return Result({"sent_to": to, "order_id": order_id}, sent, [_mailed(sent, ctx.external_key)])


@send_receipt.probe
def find_receipt(external_key: str) -> Found | NotFound:
    """Look through the mailbox for the Message-ID that follows from the key."""
    mails = smtp.in_maildir(places().maildir, external_key)
    evidence = (f"mailbox: {len(mails)} mail(s) with the Message-ID",)
    if not mails:
        return NotFound(evidence)
    result = {"sent_to": str(mails[0]["To"]), "order_id": str(mails[0]["X-Order-Id"])}
    sent = smtp.message_id(external_key)
    return Found(result, sent, evidence, (_mailed(sent, external_key),))


@send_receipt.verifier
def receipt_is_there(change: StateChange) -> Verdict:
    """Whether the mailbox still has it."""
    return smtp.confirm_in_maildir(places().maildir, change)


@tool(effect_class="probeable", settles_within_s=SETTLES_WITHIN_S)
async def file_issue(ctx: ToolContext, order_id: str, title: str) -> Result:
    """File an issue for bookkeeping; the order and the key stand in its title."""
    marked = f"{title} {order_id} {_mark(ctx.external_key)}"
    response = await http.call(
        ctx,
        "POST",
        _issues(),
        json={"title": marked},
        auth=TRACKER_LOGIN,
        headers={"X-Requested-With": "rest", "Origin": places().tracker_url},
        transport=http.direct(),
    )
    issue_id = str(response.json()["data"]["id"])
    return Result(_filed(marked, ctx.external_key), issue_id, [_created(issue_id, ctx.external_key)])


@file_issue.probe
async def find_issue(external_key: str, ctx: ProbeContext) -> Found | NotFound:
    """Look for the issue with the key in its title."""
    rows = await _issues_with(ctx, title=external_key)
    issues = [one for one in rows if _mark(external_key) in one["title"]]
    evidence = (f"tracker: {len(issues)} issue(s) with the key in the title",)
    if not issues:
        return NotFound(evidence)
    issue_id = str(issues[0]["id"])
    return Found(_filed(issues[0]["title"], external_key), issue_id, evidence, (_created(issue_id, external_key),))


@file_issue.verifier
async def issue_is_there(change: StateChange, ctx: ProbeContext) -> Verdict:
    """Whether the tracker still lists it, with the key in its title; what is retired is in no list."""
    rows = await _issues_with(ctx, id=change.resource_id)
    if not rows:
        return Drifted({"issue": "is not there"})
    if _mark(ctx.external_key) not in rows[0]["title"]:
        return Drifted({"title": "the key is gone"})
    return Confirmed(("tracker: it has the key in its title",))


async def _issues_with(ctx: ProbeContext, **wanted: str) -> list[Any]:
    """The issues that the tracker lists for these fields, with their titles."""
    params = {**wanted, "@fields": "title"}
    answer = await http.read(ctx, _issues(), params=params, auth=TRACKER_LOGIN, transport=http.direct())
    return answer["data"]["collection"]


def _mailed(sent: str, external_key: str) -> StateChange:
    return StateChange("mail", sent, "send", external_ref=external_key)


def _created(issue_id: str, external_key: str) -> StateChange:
    return StateChange("issue", issue_id, "create", external_ref=external_key)


def _refunded(made: Any) -> dict[str, Any]:
    return {
        "order_id": made["metadata"]["order_id"],
        "amount": made["amount"],
        "currency": made["currency"],
        "status": made["status"],
    }


def _filed(marked: str, external_key: str) -> dict[str, str]:
    """The title as it was asked for: the key names the job, and a result may not."""
    return {"title": marked.removesuffix(f" {_mark(external_key)}")}


def _mark(external_key: str) -> str:
    """In brackets, so that attempt 1 isn't found in attempt 10."""
    return f"[{external_key}]"


async def _before_sending(ctx: ToolContext, order_id: str) -> Any:
    """The charge; a read that fails comes before anything is sent."""
    try:
        return await _charge_of(ctx, order_id)
    except (httpx.HTTPError, http.UnclearResponse, ValueError) as error:
        raise NotExecuted(f"the order could not be read: {type(error).__name__}") from None


async def _charge_of(ctx: ToolContext, order_id: str) -> Any:
    for charge in await _all_of(ctx, "charges"):
        if charge["metadata"].get("order_id") == order_id:
            return charge
    raise Failed("there is no such order")


async def _all_of(ctx: ToolContext | ProbeContext, kind: str) -> list[Any]:
    """Every page of a list of the payment service."""
    found: list[Any] = []
    params = {"limit": str(_PAGE)}
    while True:
        page = await http.read(ctx, _stripe(kind), params=params, auth=(STRIPE_KEY, ""), transport=http.direct())
        found += page["data"]
        if not page["has_more"]:
            return found
        params["starting_after"] = found[-1]["id"]


def _stripe(kind: str) -> str:
    return f"{places().stripe_url}/v1/{kind}"


def _issues() -> str:
    return f"{places().tracker_url}/rest/data/issue"
