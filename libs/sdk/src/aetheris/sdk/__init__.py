"""Write tools, probes and verifiers; call the gateway."""
