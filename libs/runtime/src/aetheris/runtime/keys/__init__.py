"""Private keys, and what is signed with them; the pure part is `aetheris.protocol.base.signing`."""
