"""Tools in processes of their own, which are given no credentials (docs/tools.md, "In a process of its own")."""
