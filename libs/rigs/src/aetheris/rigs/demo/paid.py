"""How the demo's bank writes a payout down."""


def tag_of(to: str, amount: int) -> str:
    """One line of the bank's book."""
    return f"{to} {amount}"
