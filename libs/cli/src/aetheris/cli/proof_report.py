"""How a job's proofs are told: whether they hold, and what was found."""

import json
from collections.abc import Mapping
from typing import Any

from rich.text import Text

from aetheris.cli.console import fields, out, shown

MOST_SHOWN = 20
"""Records behind a seal that are printed; with --json, all."""


def holds(report: Mapping[str, Any]) -> bool:
    """Whether every proof holds and nothing contradicts it; of a call, or a redacted bundle, what is shown."""
    if "not_shown" in report or "redacted" in report:
        return bool(report["ok"])
    if "tool_invocation_ledger_proof" not in report:
        return False
    seal: Mapping[str, Any] = report.get("seal") or {}
    proven = report["tool_invocation_ledger_proof"]["ok"] and report["replay_proof_result"]["ok"]
    return proven and not report.get("violations") and (seal.get("ok", False) or not seal.get("present", False))


def print_report(report: Mapping[str, Any]) -> None:
    """Of a whole job, of a redacted bundle, or of one call."""
    if "redacted" in report:
        _print_redacted(report)
    elif "not_shown" in report:
        _print_call(report)
    else:
        _print_whole(report)


def _print_whole(report: Mapping[str, Any]) -> None:
    if "tool_invocation_ledger_proof" in report:
        _print_proofs(report)
    for violation in report.get("violations", ()):
        _print_finding("violation", violation)
    for record in report.get("unproven", ()):
        _print_finding("does not count", record)
    for note in report.get("notes", ()):
        _print_finding("note", note)
    amended = report.get("amended")
    if amended:
        first = f"sealed at first: {amended['event_count']} records, which {'hold' if amended['ok'] else 'do not hold'}"
        text = f"{amended['amendments']} times; {first}; what came later breaks {len(amended['shows'])} rules"
        fields((("amended", text),))
    if report.get("hidden_values"):
        text = f"{report['hidden_values']} values, {report.get('opened_values', 0)} of them opened to this check"
        fields((("hidden", text),))
    for one in report.get("erasures", ()):
        text = f"{one['values']} values, under {one['pseudonym']}, at {one['erased_at']}; logged at {one['logged_at']}"
        fields((("erased", shown(text)),))
    after_seal = report.get("after_seal", ())
    if after_seal:
        fields((("after the seal", f"{len(after_seal)} records, not part of it"),))
    for record in after_seal[:MOST_SHOWN]:
        _print_finding("after the seal", record)
    for again in report.get("reopened_by_hand", ()):
        evidence = json.dumps(again["evidence"], ensure_ascii=False)
        fields((("tried again", f"{again['node_id']}, by {again['by']} at {again['said_at']}: {evidence}"),))
    for word in report.get("glass_broken", ()):
        text = f"{word['what']} {word['node_id'] or ''}, by {word['by']} at {word['said_at']}, alone, in an emergency"
        fields((("glass broken", shown(text)),))
    for word in report.get("signed", ()):
        whose = {None: "whose it is, --signers says", True: "his, as the signers say", False: "not his"}[word["known"]]
        text = f"{word['what']} {word['node_id']}, by {word['by']} at {word['said_at']}, key {word['key']}: {whose}"
        fields((("signed", shown(text)),))
    for gone in report.get("ended_by_hand", ()):
        evidence = json.dumps(gone["evidence"], ensure_ascii=False)
        text = f"{gone['worker_id']}, by {gone['by']} at {gone['said_at']}: {evidence}"
        fields((("said to have ended", text),))
    for one in report.get("with", ()):
        fields((("with", f"job {shown(one['job_id'])}, which {'holds' if one['ok'] else 'does not hold'} by itself"),))
    left_out = [one["job_id"] for one in report.get("begun", ()) if not one["shown"]]
    if left_out:
        text = f"{len(left_out)} jobs that it has begun, of which nothing is shown: {', '.join(left_out[:MOST_SHOWN])}"
        fields((("not shown", shown(text)),))
    for word in report.get("settled_by_hand", ()):
        text = f"{word['node_id']} of job {word['of']}: {word['verdict']}, says {word['by']}: {word['evidence']}"
        fields((("by hand", shown(text)),))
    if [one["rule"] for one in report.get("violations", ())] == ["no_public_key"]:
        out.print(Text("unchanged since sealed by whoever holds these keys", "yellow"))
    else:
        out.print(Text("holds", "green") if holds(report) else Text("does not hold", "red"))


def _print_redacted(report: Mapping[str, Any]) -> None:
    for one in (report, *report.get("continued", ())):
        redacted = one["redacted"]
        types = ", ".join(f"{count} {shown(kind)}" for kind, count in redacted["types"].items())
        rules = "checked, but for what large results say" if redacted["rules_checked"] else "not checked"
        fields(
            (
                ("job", one["job_id"]),
                ("event tree", one["event_tree_root_hash"]),
                ("events", one.get("event_count")),
                ("signed under", one["installation"] or "no root that is shown"),
                ("left out", f"{redacted['records']} records: {types or 'none'}; large results"),
                ("rules", rules),
            )
        )
    for violation in report["violations"]:
        _print_finding("violation", violation)
    for record in report["unproven"]:
        _print_finding("does not count", record)
    fields((("trusted keys", ", ".join(report["trusted"])),))
    out.print(Text("holds, as far as it is shown", "green") if report["ok"] else Text("does not hold", "red"))


def _print_call(report: Mapping[str, Any]) -> None:
    beside = ("ok", "violations", "trusted", "not_shown", "hidden_values", "opened_values")
    fields([(name, value) for name, value in report.items() if name not in beside])
    hidden = report["hidden_values"]
    fields((("hidden", f"{hidden} values, {report['opened_values']} of them opened" if hidden else None),))
    fields((("not shown", f"{report['not_shown']} parts of the call"), ("trusted keys", ", ".join(report["trusted"]))))
    out.print(Text("holds: this call, as its verifier sealed it; what else the job did, its bundle shows", "green"))


def _print_proofs(report: Mapping[str, Any]) -> None:
    ledger, replay = report["tool_invocation_ledger_proof"], report["replay_proof_result"]
    pending = ", ".join(ledger["pending_idempotency_keys"])
    fields(
        (
            ("job", report.get("job_id")),
            ("state", "ended" if report.get("ended") else "still runs: what is open is pending"),
            ("execution", report["execution_hash"]),
            ("event chain", report["event_chain_root_hash"]),
            ("event tree", report["event_tree_root_hash"]),
            ("ledger", "holds" if ledger["ok"] else f"does not hold; pending: {pending or 'none'}"),
            ("replay", "holds" if replay["ok"] else f"does not hold: {replay['error']}"),
            ("outcome", report.get("outcome_hash")),
            ("events", report.get("event_count")),
            ("seal", _seal(report.get("seal") or {})),
            ("signed under", report.get("installation") or "no root: anybody who may write there wrote it"),
            *(("continues", f"job {one['job_id']}") for one in report.get("continued", ())),
            ("trusted keys", ", ".join(report.get("trusted", ()))),
        )
    )


def _seal(seal: Mapping[str, Any]) -> str:
    if not seal.get("present"):
        return "none yet: nothing says that no record is missing at the end"
    return f"{'holds' if seal.get('ok') else 'does not hold'}, over {seal.get('event_count')} records"


def _print_finding(kind: str, found: Mapping[str, Any]) -> None:
    where = f"event {shown(found['event_id'])} at offset {found['offset']}: " if found["offset"] >= 0 else ""
    where = f"job {shown(found['job_id'])}: {where}" if "job_id" in found else where
    out.print(f"{kind:<14} {shown(found['rule'])}: {where}{shown(found['message'])}")
