"""What a step costs, measured on a system of its own (docs/cli.md)."""
