"""The partition worker, and the handlers that services give it."""
