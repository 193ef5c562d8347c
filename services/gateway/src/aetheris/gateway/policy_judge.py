"""`python -m aetheris.gateway.policy_judge`: judges calls by a policy in a process of its own, which can be ended.

A condition is somebody's program: in the gateway's own process it would hold up everybody else's requests for as long
as it takes. This one has no key and no token: it is told a policy and records of jobs, and asks for results by hash.
Lines of JSON: `{policy, since}`, answered `{"ready": true}`; then per job `{records}`, answered by any number of
`{"want": sha256}`, each answered `{"value": …}` or `{}`, and `{calls, unjudged, differ, differences}`.
"""

import json
import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

from aetheris.protocol.base.records import Record
from aetheris.protocol.planning.policy import parse
from aetheris.views.policy_trial import Trial

MOST_DIFFERENCES = 200
"""Of a job, so many are told."""
LONGEST_S = 60
"""What such a process may take of the processor in its life, whatever becomes of who started it."""


def wired(records: Sequence[Record]) -> list[list[Any]]:
    """Records as JSON has them: bytes as the characters of the same numbers."""
    return [
        [
            one.offset,
            one.timestamp_ms,
            one.key.decode("latin-1") if one.key is not None else None,
            [[name, value.decode("latin-1")] for name, value in one.headers],
            one.value.decode("latin-1"),
        ]
        for one in records
    ]


def _records(found: Sequence[Sequence[Any]]) -> list[Record]:
    return [
        Record(
            "",
            0,
            offset,
            timestamp_ms,
            key.encode("latin-1") if key is not None else None,
            tuple((name, header.encode("latin-1")) for name, header in headers),
            value.encode("latin-1"),
        )
        for offset, timestamp_ms, key, headers, value in found
    ]


class _AskedResults(Mapping[str, Any]):
    """Large results, each asked for when it is needed."""

    def __init__(self, said: IO[str], heard: IO[str]) -> None:
        self._said = said
        self._heard = heard

    def __getitem__(self, sha256: str) -> Any:
        _say(self._said, {"want": sha256})
        answer = json.loads(self._heard.readline() or "{}")
        if "value" not in answer:
            raise KeyError(sha256)
        return answer["value"]

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _say(to: IO[str], what: Mapping[str, Any]) -> None:
    to.write(json.dumps(what) + "\n")
    to.flush()


def main() -> None:
    """Until nothing more comes."""
    resource.setrlimit(resource.RLIMIT_CPU, (LONGEST_S, LONGEST_S))
    said, heard = sys.stdout, sys.stdin
    first = json.loads(heard.readline() or "null")
    if first is None:
        return
    policy = parse(first["policy"])
    _say(said, {"ready": True})
    results = _AskedResults(said, heard)
    for line in heard:
        trial = Trial(policy, first["since"])
        trial.judge(_records(json.loads(line)["records"]), results)
        told = [one.to_json() for one in trial.differences[:MOST_DIFFERENCES]]
        counts = {"calls": trial.calls, "unjudged": trial.unjudged, "differ": len(trial.differences)}
        _say(said, {**counts, "differences": told})


if __name__ == "__main__":
    main()
