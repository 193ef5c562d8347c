"""The prober: a process of its own that loads tools, asks external systems, and holds no key."""
