"""A shop's refund: a naive agent and Aetheris, against servers that count what reached them."""
