"""Web pages for the people who answer for agents: a client of the public HTTP API, with their own sessions."""
