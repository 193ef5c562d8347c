"""Says which nodes of a job may run next."""
