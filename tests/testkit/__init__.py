"""What the tests share: systems, tools, histories, the external system."""
