"""Tables of docs/ that a long test makes: between two comments, which name it."""

from collections.abc import Sequence

from tests.testkit.system import REPOSITORY


def write_table(page: str, name: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Replace the table of that name."""
    path = REPOSITORY / "docs" / page
    begin, end = f"<!-- table {name} -->", f"<!-- end of {name} -->"
    before, _, rest = path.read_text().partition(begin)
    _, found, after = rest.partition(end)
    assert found, f"{page} has no place for the table {name}"
    lines = [heads, ["---"] * len(heads), *rows]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    path.write_text(f"{before}{begin}\n{table}{end}{after}")
