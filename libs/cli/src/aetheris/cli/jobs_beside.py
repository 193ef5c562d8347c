"""Jobs whose files are given beside one that is verified: what they say of each other is held against each other."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aetheris.cli import judgement, streamfile
from aetheris.cli.console import CommandError, Exit
from aetheris.cli.inputs import read_bytes
from aetheris.proofs import bundle
from aetheris.proofs.continued import Link
from aetheris.proofs.evidence import BadEvidence, judge
from aetheris.proofs.related import children_of, related_violations
from aetheris.proofs.trust import TrustedKey

Report = dict[str, Any]
Keys = Sequence[TrustedKey] | None
"""By which a file is judged; None: by those that it brings."""


def with_jobs(
    report: Report, path: Path, beside: Sequence[Path], judged: Callable[[Path], Report], *, keys: Keys, data: Path
) -> Report:
    """The report on a file, with those on the jobs beside it and what is wrong between them all.

    Args:
        judged: how each of those files is judged by itself.

    Raises:
        CommandError: a file can't be read, is redacted, or is of a job that another one is of.
    """
    reports = {one: judged(one) for one in beside}
    found: list[Report] = []
    links: list[Link] = []
    for one in (path, *beside):
        link = _link(one, keys, data)
        if link is None:
            continue  # its report says why
        if any(known.job_id == link.job_id for known in links):
            rule = f"--with {one}: job {link.job_id} is given twice"
            raise CommandError(Exit.BAD_INPUT, "bad_usage", rule, field="--with")
        links.append(link)
    for one, of in reports.items():
        found += ({"job_id": of.get("job_id", one.name), **broken} for broken in of["violations"])
    found += ({**broken.to_json(), "job_id": job_id} for job_id, broken in related_violations(links))
    known = {link.job_id for link in links}
    begun = [] if not links else [{"job_id": one, "shown": one in known} for one in children_of(links[0])]
    return {
        **report,
        "ok": report["ok"] and not found and all(one["ok"] for one in reports.values()),
        "violations": [*report["violations"], *found],
        "with": [_summary(one, name) for name, one in reports.items()],
        "begun": begun,
    }


def _summary(report: Mapping[str, Any], path: Path) -> Report:
    named = ("event_chain_root_hash", "event_tree_root_hash", "installation")
    return {"job_id": report.get("job_id", path.name), "ok": report["ok"], **{name: report.get(name) for name in named}}


def _link(path: Path, keys: Keys, data: Path) -> Link | None:
    """A file's job, judged; None where its evidence can't be read."""
    content = read_bytes(path)
    if not (content.startswith(b"PK") or path.suffix == ".zip"):
        stream = streamfile.parse(content)
        return judgement.judged(stream.job_id, list(stream.raw()), keys or stream.keys, data)
    try:
        shown = bundle.contents(content, keys, datetime.now(UTC))
    except BadEvidence as error:
        if error.rule == "redacted":
            rule = f"{path}: records are left out of it: what it says of other jobs is not shown"
            raise CommandError(Exit.BAD_INPUT, "bad_usage", rule, field="--with") from None
        return None
    found = judge(shown.records, shown.keys if keys is None else keys, shown.blobs.__getitem__)
    return Link(shown.job_id, found.report, found.validity, shown.blobs.__getitem__)
