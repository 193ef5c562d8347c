"""A process of a client of a session: it makes calls, one behind the other, and says on stdout what each came to.

Run it: `python -m tests.testkit.session_client RUN_ID CALLS` with AETHERIS_URL and AETHERIS_TOKEN; CALLS is a list in
JSON of [tool, arguments].
"""

import json
import os
import sys

from aetheris.sdk.client import Client

TOOLS = ("poke_*", "patient_probeable")


def main(run_id: str, calls: str) -> None:
    """Make them, and complete the run."""
    with (
        Client(os.environ["AETHERIS_URL"], os.environ["AETHERIS_TOKEN"]) as client,
        client.run(run_id, tools=TOOLS) as run,
    ):
        for tool, args in json.loads(calls):
            sys.stdout.write(f"{json.dumps(run.call(tool, **args))}\n")
            sys.stdout.flush()
        run.complete("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
