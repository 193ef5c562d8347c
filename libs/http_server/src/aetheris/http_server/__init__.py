"""HTTP servers of gateway and verifier: what a client may take of them, their names, their TLS, their internal key."""
