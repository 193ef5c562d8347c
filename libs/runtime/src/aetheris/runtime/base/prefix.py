"""What stands before an installation's names on servers that others use too: `acme` (docs/configuration.md).

A logical name, such as that of a topic, is what code, signatures and documents know; on the server it is
`acme.aetheris.jobs.events.v1` in Kafka, `acme:aetheris:lease:…` in Redis, `installations/acme/ab/abcdef…` in a bucket.
The edge to each server makes it, once; nothing above knows of it. An empty prefix leaves names as they are.

What is signed has the logical name: of whose installation a record is, its signature says already, by its root
(protocol.base.signing), and a bundle is checked without knowing what its brokers called a topic.
"""

import re

MOST_CHARACTERS = 100
"""Kafka's topics have names of 249 at most."""
RULE = (
    f"1 to {MOST_CHARACTERS} letters, digits, dots, dashes and underscores, a letter or digit first and last, "
    "and no part between dots that is aetheris"
)
_FORM = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


def check_prefix(prefix: str) -> str:
    """The prefix, where it is one. Of two that differ no name is another's, nor below what users of another may see.

    Raises:
        ValueError: it is none; the message says what one is.
    """
    fits = _FORM.fullmatch(prefix) and len(prefix) <= MOST_CHARACTERS and "aetheris" not in prefix.split(".")
    if prefix and not fits:
        raise ValueError(RULE)
    return prefix


def in_kafka(prefix: str) -> str:
    """What stands before a topic or a group; raises ValueError as `check_prefix` does."""
    return f"{check_prefix(prefix)}." if prefix else ""


def in_redis(prefix: str) -> str:
    """What stands before a key or a channel; raises ValueError as `check_prefix` does."""
    return f"{check_prefix(prefix)}:" if prefix else ""


def in_bucket(folder: str, prefix: str) -> str:
    """The folder of an installation's objects below the one of all; raises ValueError as `check_prefix` does."""
    return "/".join(filter(None, (folder, f"installations/{check_prefix(prefix)}" if prefix else "")))
