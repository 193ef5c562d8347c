"""How the demos' banks write down what they pay."""


def tag_of(to: str, amount: int) -> str:
    """One line of the bank's book."""
    return f"{to} {amount}"


def payment_of(order: str) -> str:
    """One line of the bank's book, of what an order costs."""
    return f"payment of {order}"
