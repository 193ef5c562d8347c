"""The `aetheris` command."""

from aetheris.cli.app import app


def main() -> None:
    """Run the command line; ends the process with one of the exit codes of docs/cli.md."""
    app()


if __name__ == "__main__":
    main()
