"""Labels of jobs on the command line: NAME=VALUE."""

from typing import Annotated

import typer

from aetheris.cli.console import CommandError, Exit
from aetheris.protocol.base.labels import LONGEST_LABEL, MOST_LABELS, are_labels
from aetheris.sdk.client import JobSummary

Label = Annotated[
    list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="What the job is found by; repeat it.")
]


def labels_of(texts: list[str] | None) -> dict[str, str]:
    """As they were written.

    Raises:
        CommandError: they are none.
    """
    pairs = [text.partition("=") for text in texts or ()]
    found = {name: value for name, _, value in pairs}
    if len(found) != len(pairs) or not are_labels(found):
        rule = f"write NAME=VALUE, {MOST_LABELS} names at most, each once, values of 1 to {LONGEST_LABEL} characters"
        raise CommandError(Exit.BAD_INPUT, "bad_usage", f"--label: {rule}", field="--label")
    return found


def labels_shown(job: JobSummary) -> str:
    """A job's, on one line."""
    return " ".join(f"{name}={value}" for name, value in job.labels.items())
